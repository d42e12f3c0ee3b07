import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

/** Whether a program can be run here. */
export async function installed(program: string): Promise<boolean> {
  return promisify(execFile)('which', [program]).then(
    () => true,
    () => false,
  );
}
