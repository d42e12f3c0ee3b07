/** The path of PUBLIC_URL without a slash at the end; empty at the root. */
export const basePath = (publicUrl: string): string => new URL(publicUrl).pathname.replace(/\/+$/, '');

/** The options of a cookie for the pages below `path`. */
export const cookieAt = (publicUrl: string, path = '') =>
  ({
    path: `${basePath(publicUrl)}${path}` || '/',
    httpOnly: true,
    // Lax lets a link or a redirect of another site, such as the provider or the library, lead to a page with the cookie.
    sameSite: 'lax',
    secure: new URL(publicUrl).protocol === 'https:',
  }) as const;
