import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

/** Whether a program is installed. */
export async function installed(program: string): Promise<boolean> {
  return promisify(execFile)('which', [program]).then(
    () => true,
    () => false,
  );
}
