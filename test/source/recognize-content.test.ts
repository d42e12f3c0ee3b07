import { describe, expect, test } from 'vitest';
import { isErrorPage, isMp4, isTextual } from '../../src/source/recognize-content.ts';

describe('an error page in place of a file', () => {
  test.each([
    '<!doctype html><title>Forbidden</title>',
    '\n\t <!DOCTYPE html>',
    '<html lang="en">',
    '\uFEFF<HTML>',
    '{"error":"expired"}',
    '{\n  "error": {"code": 403}}',
    '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code></Error>',
    '<Error xmlns="http://s3.amazonaws.com/doc/2006-03-01/">',
  ])('an error page is recognized by its beginning: %j', (text) => {
    expect(isErrorPage(Buffer.from(text))).toBe(true);
  });

  test.each([
    '',
    'hello',
    '<svg xmlns="http://www.w3.org/2000/svg">',
    '<?xml version="1.0"?><svg/>',
    '{"asset": {"error": null}}',
    '<Errors/>',
    'GIF89a',
    'the <html>',
    '%PDF-1.7 <!doctype html>',
  ])('a file that begins with %j is not taken for an error page', (text) => {
    expect(isErrorPage(Buffer.from(text))).toBe(false);
  });
});

test.each([
  [Buffer.from('\0\0\0\x20ftypisom'), true],
  [Buffer.from('\0\0\0\x08wide\0\0\0\0mdat'), true],
  [Buffer.from('\x1aE\xdf\xa3webm'), false],
  [Buffer.from('ftypisom'), false],
  [Buffer.from('\0\0\0'), false],
  [Buffer.alloc(0), false],
])('a file that begins with %j counts as an MP4: %s', (head, is) => {
  expect(isMp4(head)).toBe(is);
});

test.each([
  ['text/html', true],
  ['application/json', true],
  ['application/ld+json; charset=utf-8', true],
  ['application/xml', true],
  ['image/svg+xml', true],
  ['application/octet-stream', false],
  ['video/mp4', false],
  ['', false],
  [undefined, false],
  [null, false],
])('the type %s counts as text: %s', (type, is) => {
  expect(isTextual(type)).toBe(is);
});
