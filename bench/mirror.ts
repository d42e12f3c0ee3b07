import { type ChildProcess, execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

// The benchmarks measure the installed form: the package, and the image.
await promisify(execFile)(process.execPath, [
  '--disable-warning=ExperimentalWarning',
  fileURLToPath(new URL('../build.ts', import.meta.url)),
]);
export const main = fileURLToPath(new URL('../dist/main.js', import.meta.url));

export type Mirror = ChildProcess & { pid: number };
