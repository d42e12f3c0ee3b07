#!/usr/bin/env node
import { enableCompileCache, flushCompileCache } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';

// How the runtime deals with memory, before anything is loaded. Files pass through in buffers of up to 120 KiB that live for a
// moment; left to themselves, V8 and glibc keep some hundred MiB of those that are done with (bench/large-files.ts).

// V8 looks for garbage by what objects take themselves, not by the buffers that they hold: so it looks more often, with
// few young objects and when the old have grown by a half; and what it finds is freed then and there.
setFlagsFromString('--semi-space-growth-factor=1');
setFlagsFromString('--heap-growing-percent=50');
setFlagsFromString('--no-concurrent-array-buffer-sweeping');

const { argv, env, execArgv, execPath, platform } = process;
const runsLong = ['start', 'demo'].includes(argv[2] ?? '');

/** MiB for young objects: those of all small files in hand, which would count as old otherwise before they are done with. */
const room = '--min-semi-space-size=4';
const hasRoom = execArgv.includes(room);

/** Begins once more, as the same process, with more in its environment. */
const beginAgain = (added: NodeJS.ProcessEnv) => {
  const told = hasRoom ? execArgv : [room, ...execArgv];
  process.execve?.(execPath, [execPath, ...told, ...argv.slice(1)], { ...env, ...added });
};

// Compiled code that is kept for the next start stays in memory, too, 13 MiB of it: what runs long does without, and starts a
// tenth of a second later. But what takes the types out of the sources is 18 MiB, and is not needed for what is kept: so who
// is the first to run from them keeps it, and begins for the last time.
const fromSource = import.meta.filename.endsWith('.ts');
const cache = fromSource && { NODE_COMPILE_CACHE: env.NODE_COMPILE_CACHE ?? join(tmpdir(), 'node-compile-cache') };

// glibc gives freed memory back when there is one heap and little is kept in reserve. It takes this from the environment
// when a process begins and never again, as V8 does the room: so what is to run for long begins once more.
const allocator = { MALLOC_ARENA_MAX: '1', MALLOC_TOP_PAD_: '65536', MALLOC_TRIM_THRESHOLD_: '131072' };
const isSet = Object.keys(allocator).some((name) => name in env);
if (runsLong && !hasRoom && platform === 'linux') beginAgain({ ...(!isSet && allocator), ...cache });

if (fromSource || !runsLong) enableCompileCache();

const { moduleLoadList = [] } = process as { moduleLoadList?: string[] };
const hasStripped = moduleLoadList.some((name) => name.includes('amaro'));
const { run, loadService } = await import('./command.ts');
if (argv[2] === 'start' && hasStripped && env.NODE_COMPILE_CACHE && !env.ASSET_MIRROR_CACHED) {
  await loadService();
  flushCompileCache();
  beginAgain({ ASSET_MIRROR_CACHED: 'yes' });
}
await run();
