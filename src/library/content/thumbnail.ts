import { type Body, bodyOf } from './body.ts';
import { png } from './formats/images.ts';

/** A picture for what shows nothing by itself, such as sound: the pattern is that of its name. */
export function placeholder(name: string): () => Body {
  return () => bodyOf('image/png', [png(96, 64, name)]);
}
