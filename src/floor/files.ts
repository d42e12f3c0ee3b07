import { access } from 'node:fs/promises';

/** Whether `path` exists and allows the access of `mode` (see fs.access). False also if that cannot be checked. */
export const exists = (path: string, mode?: number): Promise<boolean> =>
  access(path, mode).then(
    () => true,
    () => false,
  );
