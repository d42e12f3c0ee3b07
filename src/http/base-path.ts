/** The path of PUBLIC_URL without a slash at the end; empty at the root. */
export const basePath = (publicUrl: string): string => new URL(publicUrl).pathname.replace(/\/+$/, '');
