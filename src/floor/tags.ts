/** Tags of a connection, such as `client=acme`: they show which client of an agency it belongs to. */
export type Tags = Record<string, string>;

/** A connection has at most this many. */
export const mostTags = 10;

export const tagKey = /^[a-z][a-z0-9_-]{0,30}$/;
/** Up to 100 characters that can be printed, without spaces at the ends. */
export const tagValue = /^(?!\s)[^\p{C}\p{Zl}\p{Zp}]{1,100}(?<!\s)$/u;

/** The form of a tag, for error messages. */
export const tagForm =
  'key=value such as client=acme; the key has up to 31 of a-z, 0-9, _ and -, and begins with a letter; the value has up to 100 printable characters';

/** Key and value of `client=acme`. Undefined: it is no tag. */
export function parseTag(text: string): [key: string, value: string] | undefined {
  const [, key = '', given = ''] = /^([^=]*)=(.*)$/s.exec(text) ?? [];
  const value = given.normalize('NFC');
  return tagKey.test(key) && tagValue.test(value) ? [key, value] : undefined;
}

/** `client=acme tier=gold` */
export const tagsText = (tags: Tags): string =>
  Object.entries(tags)
    .map(([key, value]) => `${key}=${value}`)
    .join(' ');
