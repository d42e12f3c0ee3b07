import { conformance } from './conformance.ts';
import { newDirectory } from './grounds.ts';

conformance('a directory', newDirectory);
