import type { Check } from '../check.ts';
import { asset } from './asset.ts';
import { authorize } from './authorize.ts';
import { signedLinks } from './links.ts';
import { list } from './list.ts';
import { registration } from './registration.ts';
import { resources } from './resources.ts';
import { tokens } from './tokens.ts';
import { transcripts } from './transcripts.ts';

/** Every check, in the order in which they run. What moves the clock comes last in its room. */
export const CHECKS: Check[] = [
  ...registration,
  ...authorize,
  ...resources,
  ...list,
  ...asset,
  ...transcripts,
  ...tokens,
  ...signedLinks,
];
