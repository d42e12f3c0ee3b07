import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

// V8 shows its collector to those alone who begin when the flag is set.
setFlagsFromString('--expose-gc');
/** V8's collector: of young objects in a millisecond, of everything in 40, as a last resort with compiled code that is not used in 100. */
export const collect = runInNewContext('gc') as (
  what: { type: 'minor' } | { type: 'major'; flavor?: 'last-resort' },
) => void;
setFlagsFromString('--no-expose-gc');
