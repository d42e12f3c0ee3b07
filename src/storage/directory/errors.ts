import { Rejected, StorageUnavailable } from '../../floor/errors.ts';

export const codeOf = (error: unknown) => (error as NodeJS.ErrnoException | undefined)?.code ?? '';
export const isMissing = (error: unknown) => ['ENOENT', 'ENOTDIR', 'ENAMETOOLONG'].includes(codeOf(error));

/** By code: what is wrong, and what to do. */
const words: Record<string, [found: string, remedy?: string]> = {
  ENOSPC: ['the disk is full'],
  EDQUOT: ['the disk quota is used up'],
  EROFS: ['the file system is read-only'],
  EACCES: ['this process has no permission to write there'],
  EPERM: ['this process has no permission to write there'],
  EIO: ['the disk reports errors'],
  EREMOTEIO: ['the disk reports errors'],
  ENODEV: ['the disk was removed'],
  ENXIO: ['the disk was removed'],
  ENOTCONN: ['the file system is no longer connected', 'mount it again'],
  ESHUTDOWN: ['the file system is no longer connected', 'mount it again'],
  ESTALE: ['the network file system has lost the directory', 'mount it again'],
  ETIMEDOUT: ['the network file system does not answer'],
  EHOSTDOWN: ['the network file system does not answer'],
  EHOSTUNREACH: ['the network file system does not answer'],
  EMFILE: ['this process has too many open files', 'raise its limit (ulimit -n)'],
  ENFILE: ['this machine has too many open files'],
  ENOENT: ['the directory no longer exists'],
  ENOTDIR: ['a file has the path of the directory'],
  EEXIST: ['a file has the path of the directory'],
};

/** An error of the file system as one of the classes of errors.ts, if it concerns the whole directory; else unchanged. */
export function classify(error: unknown, root: string): unknown {
  if (codeOf(error) === 'EFBIG') return new Rejected({ code: 'too_large', store: root });
  const word = words[codeOf(error)];
  if (!word) return error;
  const [found, remedy] = word;
  const diagnosis = remedy ? { found, remedy } : undefined;
  return new StorageUnavailable(`${root}: ${word.join('; ')}`, { diagnosis, cause: error });
}

/** The error of a rename into place, if it concerns only this object and not the whole directory; else unchanged. */
export function classifyOfKey(error: unknown, key: string): unknown {
  const code = codeOf(error);
  if (['EEXIST', 'ENOTDIR', 'EISDIR', 'ENOTEMPTY', 'ELOOP'].includes(code)) {
    return new Error(`store ${key}: another file or directory has its path`, { cause: error });
  }
  if (code === 'ENAMETOOLONG') {
    return new Rejected({ code: 'key_refused', key, problem: 'too_long' });
  }
  if (code === 'EILSEQ' || code === 'EINVAL') {
    return new Rejected({ code: 'key_refused', key, problem: 'invalid' }, { cause: error });
  }
  return error;
}
