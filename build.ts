import { execFileSync } from 'node:child_process';
import { cpSync, rmSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Makes `dist` of `src`, for packages and images: Node does not take types off what lies in node_modules. File by file, with
 * the dependencies beside it as they are, so that whatever looks a file up next to itself, or looks into a module as tracing
 * does, finds the same as in a clone.
 */
const [source, target] = ['src', 'dist'].map((name) => join(import.meta.dirname, name)) as [string, string];
rmSync(target, { recursive: true, force: true });
const compiler = join(import.meta.dirname, 'node_modules/typescript/bin/tsc');
execFileSync(process.execPath, [compiler, '-p', join(import.meta.dirname, 'tsconfig.build.json')], {
  stdio: 'inherit',
});
// What browsers are given, and what the library shows, are files.
for (const folder of ['http/dashboard', 'library/samples']) {
  cpSync(join(source, folder), join(target, folder), {
    recursive: true,
    filter: (path) => !/\.d\.ts$|tsconfig\.json$|vendor$/.test(path),
  });
}
