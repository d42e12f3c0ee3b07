import { asked, body, headers, type Json, type Mutation, status, TRANSCRIPT } from './faults.ts';

export const transcripts: Mutation[] = [
  {
    check: 'vtt',
    breaks: 'the default format is txt',
    fault: asked(TRANSCRIPT, ({ query }) => query.has('format') || query.set('format', 'txt')),
  },
  {
    check: 'vtt',
    breaks: 'captions have the type text/plain',
    fault: headers(TRANSCRIPT, { 'content-type': 'text/plain' }),
  },
  {
    check: 'txt',
    breaks: 'the format txt returns captions',
    fault: asked(TRANSCRIPT, ({ query }) => query.set('format', 'vtt')),
  },
  {
    check: 'json',
    breaks: 'words have no end',
    fault: body(TRANSCRIPT, (it) => ({
      ...it,
      words: it.words?.map((word: Json) => ({ ...word, end: undefined })),
    })),
  },
  {
    check: 'words-null',
    breaks: 'missing words are an empty list',
    fault: body(TRANSCRIPT, (it) => ({ ...it, words: [] })),
  },
  {
    check: 'no-speech',
    breaks: 'noSpeech comes with an empty text',
    fault: body(TRANSCRIPT, (it) => ({ ...it, text: '' })),
  },
  { check: 'no-speech', breaks: 'no speech is 204', fault: status(TRANSCRIPT, 200, 204) },
  { check: 'not-yet', breaks: 'a missing transcript is an empty one', fault: status(TRANSCRIPT, 404, 200, '') },
  { check: 'not-yet', breaks: 'a missing transcript is 202', fault: status(TRANSCRIPT, 404, 202) },
  { check: 'timed-only', breaks: 'an image has a transcript', fault: status(TRANSCRIPT, 404, 200) },
  { check: 'has-transcript', breaks: 'announced transcripts are refused', fault: status(TRANSCRIPT, 200, 403) },
  { check: 'format-unknown', breaks: 'an unknown format is a server error', fault: status(TRANSCRIPT, 400, 500) },
];
