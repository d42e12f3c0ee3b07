/** How many bytes of a file's beginning these functions need. */
export const headBytes = 512;

/** Whether a file begins like an MP4: with the size and the type of a box (ISO/IEC 14496-12, section 4.2). */
export function isMp4(head: Buffer): boolean {
  return ['ftyp', 'moov', 'free', 'mdat', 'skip', 'wide'].includes(head.toString('latin1', 4, 8));
}

/** Whether a file begins like an error page or an error document that servers send instead of a file. */
export function isErrorPage(head: Buffer): boolean {
  const text = head.toString('utf8').replace(/^\uFEFF/, '');
  return /^\s*(<!doctype|<html|\{\s*"error"|(<\?xml[^>]*\?>\s*)?<Error[\s>])/i.test(text);
}

/** Whether a media type is text: such a file may itself begin like an error page. */
export function isTextual(mimeType: string | null | undefined): boolean {
  return /^(text\/|application\/([\w.-]+\+)?(json|xml|javascript)\b|[\w.-]+\/[\w.-]+\+(json|xml)\b)/i.test(
    mimeType ?? '',
  );
}
