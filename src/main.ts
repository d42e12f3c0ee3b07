#!/usr/bin/env node
import { enableCompileCache } from 'node:module';
import { setFlagsFromString } from 'node:v8';

// How the runtime deals with memory, before anything is loaded. Files pass through in buffers of 64 KiB that live for a
// moment; left to themselves, V8 and glibc keep some hundred MiB of those that are done with (bench/large-files.ts).

// V8 looks for garbage by what objects take themselves, not by the buffers that they hold: so it looks more often, with
// few young objects and when the old have grown by a half; and what it finds is freed then and there.
setFlagsFromString('--semi-space-growth-factor=1');
setFlagsFromString('--heap-growing-percent=50');
setFlagsFromString('--no-concurrent-array-buffer-sweeping');

// glibc gives freed memory back when there is one heap and little is kept in reserve. It takes this from the environment
// when a process begins and never again, so what is to run for long begins once more, as the same process.
const allocator = { MALLOC_ARENA_MAX: '1', MALLOC_TOP_PAD_: '65536', MALLOC_TRIM_THRESHOLD_: '131072' };
const { argv, env, execArgv, execPath, platform } = process;
const runsLong = ['start', 'demo'].includes(argv[2] ?? '');
const isSet = Object.keys(allocator).some((name) => name in env);
if (runsLong && !isSet && platform === 'linux') {
  process.execve?.(execPath, [execPath, ...execArgv, ...argv.slice(1)], { ...env, ...allocator });
}

enableCompileCache();
await import('./command.ts');
