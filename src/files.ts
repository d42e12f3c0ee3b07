import { access } from 'node:fs/promises';

/** Whether `path` exists and, with `mode`, permits that (see fs.access). False also if it cannot be checked. */
export const exists = (path: string, mode?: number): Promise<boolean> =>
  access(path, mode).then(
    () => true,
    () => false,
  );
