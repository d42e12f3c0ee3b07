import type { Random } from './random.ts';

/** Realistic names, with spaces, Unicode and punctuation. */
const NAMES: Record<string, readonly string[]> = {
  videos: ['Interview Größe XL', 'Drone pass 03', 'C0042', 'Summer spot – director’s cut', '発表会 ハイライト', 'clip'],
  selects: ['Selects Tag 2', 'A-roll best of', 'DSC_8812', 'Scene 4 take 7 (good!)', 'clip'],
  social: ['Story 9x16 🚀', 'reel_final_v3_FINAL', 'Teaser für Instagram', 'post – square', '夏のキャンペーン'],
  photography: ['IMG_2041', 'IMG_2042', 'Müller & Söhne, Empfang', 'Harbour at dawn', '東京タワー 夜', 'Team 🎉 2025'],
  graphics: ['Key visual', 'Banner 970x250', 'Infografik Übersicht', 'icon set', 'pattern #7'],
  audio: ['Jingle', 'Podcast Folge 12: Zuhören', 'Room tone', 'VO take 2', '効果音 01', 'Atmo Straße'],
  documents: ['Brief', 'Release form (signed)', 'Shot list', 'Angebot 2025/14', '企画書', 'Budget 100% final'],
  'brand assets': ['Logo', 'Brand guidelines', 'Wortmarke weiß', 'Press kit', 'ロゴ 横'],
};

const LONG =
  'The very long name that somebody pasted from the subject line of an e-mail about the third round of corrections to ' +
  'the autumn campaign, with all the comments of everybody in the meeting – bitte nicht umbenennen';

export function nameOf(assetType: string, extension: string, ordinal: number, random: Random): string {
  if (ordinal % 37 === 36) return `${LONG}.${extension}`;
  const name = random.pick(NAMES[assetType]!);
  const number = random.next() < 0.5 ? ` ${random.between(1, 100)}` : '';
  if (ordinal % 23 === 22) return name + number;
  return `${name}${number}.${random.next() < 0.15 ? extension.toUpperCase() : extension}`;
}

const TAGS = ['final', 'draft', 'b-roll', 'approved', 'social', 'Übersicht', '2025', 'hero', 'print', '夏'];

export function tagsOf(random: Random): string[] {
  return TAGS.filter(() => random.next() < 0.2);
}
