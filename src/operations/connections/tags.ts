import { z } from 'zod';
import { mostTags, parseTag, type Tags, tagForm, tagKey, tagValue } from '../../floor/tags.ts';
import { text } from '../fields.ts';
import { Refused } from '../refused.ts';

const wanted = `expected at most ${mostTags} tags: ${tagForm}`;
const areTags = (tags: Record<string, string | null>) =>
  Object.values(tags).filter((value) => value !== null).length <= mostTags &&
  Object.entries(tags).every(([key, value]) => tagKey.test(key) && (value === null || tagValue.test(value)));
const value = z.string().normalize('NFC');

export const tagsAnswer = z
  .record(z.string(), z.string())
  .describe('Tags of the connection, such as `{"client": "acme"}`.');

export const tagsRequest = z.record(z.string(), value).refine(areTags, wanted);

/** Only named tags change; null removes one. */
export const tagsChange = z.record(z.string(), value.nullable()).refine(areTags, wanted);

const oneTag = text.refine((tag) => parseTag(tag) !== undefined, `expected ${tagForm}`);

export const tagFilter = z
  .union([oneTag, z.array(oneTag).max(mostTags)])
  .optional()
  .describe('A tag such as `client=acme`. May be repeated: all must match.');

/** The tags of a filter, for `haveTags` of the store. */
export const tagsIn = (filter: z.output<typeof tagFilter>): Tags[] =>
  [filter ?? []].flat().map((tag) => Object.fromEntries([parseTag(tag)!]));

/** Tags after a change. Null removes all. @throws Refused 400 if there are too many */
export function changedTags(before: Tags, change: z.output<typeof tagsChange> | null | undefined): Tags {
  if (change === undefined) return before;
  const all = Object.entries({ ...(change && before), ...change });
  const after = all.filter((tag): tag is [string, string] => tag[1] !== null);
  if (after.length > mostTags) {
    throw new Refused(400, 'too_many_tags', `A connection can have ${mostTags} tags. Remove some first.`);
  }
  return Object.fromEntries(after);
}
