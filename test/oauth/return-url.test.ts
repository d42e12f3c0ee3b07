import { expect, test } from 'vitest';
import { allowedReturnUrl, withOutcome } from '../../src/oauth/return-url.ts';

const origins = ['https://agency.example', 'https://xn--9ca.example:8443', 'http://localhost:3000'];

test.each([
  ['https://agency.example', 'https://agency.example/'],
  ['HTTPS://Agency.Example:443/done?a=1#part', 'https://agency.example/done?a=1#part'],
  ['https://é.example:8443/x', 'https://xn--9ca.example:8443/x'],
  ['http://localhost:3000/done', 'http://localhost:3000/done'],
  // Browsers read this host as agency.example, too.
  ['https://ａgency.example/', 'https://agency.example/'],
])('a return URL of an allowed origin is accepted: %s', (text, href) => {
  expect(allowedReturnUrl(text, origins)).toBe(href);
  expect(allowedReturnUrl(text, [])).toBeUndefined();
});

test.each([
  'https://other.example/',
  'https://agency.example.evil.com/',
  'https://agency.example@evil.com/',
  'https://evil.com#@agency.example/',
  'https://evil.com/https://agency.example',
  'https://user:password@agency.example/',
  'https://agency.example:8443/',
  'https://sub.agency.example/',
  'https://agency.example./',
  'https://аgency.example/',
  'https://agency。example.evil.com/',
  'http://agency.example/',
  'http://localhost/',
  '//agency.example/',
  '///agency.example',
  '/done',
  'agency.example/done',
  'https:\\\\agency.example',
  'https://agency.example\\@evil.com/',
  'https://agency.example/\\evil',
  'https://agency.example/\r\nSet-Cookie: a=b',
  'https://agency.example/\tx',
  'https://agency.example/ x',
  'https://agency.example/\u202egro.live',
  'https://agency.example/\0',
  'javascript:alert(1)//https://agency.example',
  'data:text/html,https://agency.example',
  'blob:https://agency.example/1',
  'filesystem:https://agency.example/1',
  'view-source:https://agency.example/',
  'https://agency.example/?status=connected',
  'https://agency.example/?a=1&connection=c1',
  'https://agency.example/?st%61tus=connected',
  'https://',
  '',
])('a return URL that is not exactly of an allowed origin is refused: %j', (text) => {
  expect(allowedReturnUrl(text, origins)).toBeUndefined();
});

test.each([
  ['https://agency.example/', 'https://agency.example/?connection=c1&status=connected'],
  ['https://agency.example/done?', 'https://agency.example/done?connection=c1&status=connected'],
  [
    'https://agency.example/d?a=%20b+c&q&x=%E2%9C%93#/end?z=1',
    'https://agency.example/d?a=%20b+c&q&x=%E2%9C%93&connection=c1&status=connected#/end?z=1',
  ],
])('the outcome is added to a return URL, which keeps its own query: %s', (url, expected) => {
  expect(withOutcome(url, { connection: 'c1', status: 'connected' })).toBe(expected);
  expect(withOutcome(url, { status: 'refused' })).not.toContain('connection');
});
