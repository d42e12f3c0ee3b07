import { type Body, bodyOf } from './body.ts';
import { png } from './formats/images.ts';

/** A generated thumbnail for files such as audio. Each name has its own pattern. */
export function placeholder(name: string): () => Body {
  return () => bodyOf('image/png', [png(96, 64, name)]);
}
