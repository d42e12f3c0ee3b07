/** Enough of a file's beginning to tell what it is, for whoever asks here. */
export const headBytes = 512;

/** Whether a file begins as an MP4 does: with the size and the type of a box (ISO/IEC 14496-12, section 4.2). */
export function isMp4(head: Buffer): boolean {
  return ['ftyp', 'moov', 'free', 'mdat', 'skip', 'wide'].includes(head.toString('latin1', 4, 8));
}

/** Whether a file begins as the pages, objects and documents do that servers give in place of one. */
export function isErrorPage(head: Buffer): boolean {
  const text = head.toString('utf8').replace(/^\uFEFF/, '');
  return /^\s*(<!doctype|<html|\{\s*"error"|(<\?xml[^>]*\?>\s*)?<Error[\s>])/i.test(text);
}

/** Whether a media type is one of text, in which such a beginning may be the file's own. */
export function isTextual(mimeType: string | null | undefined): boolean {
  return /^(text\/|application\/([\w.-]+\+)?(json|xml|javascript)\b|[\w.-]+\/[\w.-]+\+(json|xml)\b)/i.test(
    mimeType ?? '',
  );
}
