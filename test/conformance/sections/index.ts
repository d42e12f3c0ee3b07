import type { Check } from '../check.ts';
import { asset } from './asset.ts';
import { authorize } from './authorize.ts';
import { signedLinks } from './links.ts';
import { list } from './list.ts';
import { registration } from './registration.ts';
import { resources } from './resources.ts';
import { tokens } from './tokens.ts';
import { transcripts } from './transcripts.ts';

/** All checks, in the order in which they run. Within a section, those that move the clock are last. */
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
