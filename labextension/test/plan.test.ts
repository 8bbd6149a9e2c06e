import { describe, expect, test } from 'vitest';
import { modelActions } from '../src/actions';
import { placementChoices, planLines } from '../src/plan';
import { model, plan, rung, trans } from './made';

describe('the plan', () => {
  test('shows each rung with the name by which it can be asked for', () => {
    const lines = planLines(plan(), trans).rungs;
    expect(
      lines.map(({ name, words, memory, picture, chosen }) => ({
        name,
        words,
        memory,
        picture,
        chosen
      }))
    ).toEqual([
      {
        name: 'resident',
        words: 'everything on the GPU',
        memory: '30.0 GB',
        picture: '4.0 s',
        chosen: true
      },
      {
        name: 'staged-encoders',
        words: 'text encoders staged',
        memory: '20.0 GB',
        picture: '≈ 5.0 s',
        chosen: false
      }
    ]);
  });
});

describe('what the server says beside the rungs', () => {
  test('stands there: a warning, notes, and what the signs mean', () => {
    const warning = 'This takes 22.1 GB of 24.0 GB on cuda:0, more than 90 %.';
    const notes = ['Its VAE cannot work in tiles, so rungs with tiles are left out.'];
    const legend = '≈ reckoned from what was measured otherwise · ? a guess';
    expect(planLines(plan({ warning, notes }), trans)).toMatchObject({ warning, notes, legend });
    expect(planLines(plan({ rungs: [rung()] }), trans).legend).toBe('');
  });

  test('and what a rung takes of the other GPU', () => {
    const swaps = rung({ rung: 'swap-encoders', elsewhere_bytes: 9.3e9 });
    expect(planLines(plan({ rungs: [rung(), swaps] }), trans).rungs.map(r => r.elsewhere)).toEqual([
      '',
      'and 9.3 GB of the other GPU'
    ]);
  });
});

describe('the list to place a model from', () => {
  const values = (...given: Parameters<typeof placementChoices>) =>
    placementChoices(...given).map(choice => choice.value);

  test('has the names of the plan, the planner and models.toml', () => {
    expect(values(plan(), 'auto', trans)).toEqual(['', 'auto', 'resident', 'staged-encoders']);
    expect(placementChoices(plan(), 'auto', trans)[3]?.words).toBe(
      'staged-encoders: text encoders staged'
    );
  });

  test('has what counts now, whether the plan names it or not', () => {
    expect(values(plan(), 'cond_only', trans).at(-1)).toBe('cond_only');
    expect(values(plan(), 'resident', trans)).toHaveLength(4);
  });

  test('is none while the parts of the model are not known: any name may be typed', () => {
    expect(values(plan({ rungs: [rung()] }), 'auto', trans)).toEqual([]);
  });

  test('is made of the plan of that very model', () => {
    const place = modelActions(model('a/b', { placement: 'resident' }), trans).find(
      action => action.label === 'Place'
    );
    expect(place?.input?.choices?.path).toBe('models/a%2Fb/plan');
    expect(place?.input?.choices?.of(plan()).map(choice => choice.value)).toContain('resident');
  });
});
