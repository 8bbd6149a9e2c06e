import React, { useState } from 'react';
import { modelActions } from '../actions';
import type { Desk } from '../desk';
import { planLines } from '../plan';
import type { Room } from '../room';
import type { Plan } from '../types';
import { modelLines } from '../view';
import { Do } from './Doing';
import { useAnswer, useNow } from './hooks';
import { ModelRow } from './Now';

/** The models, with all that can be done with each. */
export function ModelsTab({ desk, room }: { desk: Desk; room: Room }) {
  const { trans } = desk;
  const now = useNow();
  return (
    <section className="jp-wg-models">
      <ul>
        {modelLines(room, now, trans).map(line => (
          <ModelRow key={line.id} line={line}>
            <div className="jp-wg-tools">
              {modelActions(line.model, trans).map(action => (
                <Do key={action.label} action={action} />
              ))}
            </div>
            {line.model.enabled && !line.model.problem && (
              <Placement desk={desk} model={line.id} state={line.state} />
            )}
          </ModelRow>
        ))}
      </ul>
    </section>
  );
}

interface PlacementProps {
  desk: Desk;
  model: string;
  state: string;
}

/** Where its weights would live, and why; asked for when it is unfolded. */
function Placement(props: PlacementProps) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={event => setOpen(event.currentTarget.open)}>
      <summary>{props.desk.trans.__('Placement')}</summary>
      {open && <PlanTable {...props} />}
    </details>
  );
}

function PlanTable({ desk, model, state }: PlacementProps) {
  const { trans } = desk;
  const path = `models/${encodeURIComponent(model)}/plan`;
  const { answer, problem } = useAnswer<Plan>(desk, path, state);
  if (!answer) {
    return <p className="jp-wg-detail">{problem || trans.__('Asking the planner …')}</p>;
  }
  const plan = planLines(answer, trans);
  return (
    <>
      <p className="jp-wg-detail">{plan.where}</p>
      {plan.warning && <p className="jp-wg-note jp-mod-warn">{plan.warning}</p>}
      <table className="jp-wg-table">
        <thead>
          <tr>
            <th scope="col">{trans.__('from best to slowest')}</th>
            <th scope="col">{trans.__('memory')}</th>
            <th scope="col">{trans.__('a picture')}</th>
          </tr>
        </thead>
        {plan.rungs.map(rung => (
          <tbody key={rung.name}>
            <tr className={rung.chosen ? 'jp-mod-chosen' : ''}>
              <th scope="row">
                <code>{rung.name}</code>
              </th>
              <td className="jp-wg-number">{rung.memory}</td>
              <td className="jp-wg-number">{rung.picture}</td>
            </tr>
            <tr className="jp-wg-why">
              <td colSpan={3}>
                {rung.words}
                <span className="jp-wg-detail">
                  {[rung.elsewhere, rung.why].filter(Boolean).join(' · ')}
                </span>
              </td>
            </tr>
          </tbody>
        ))}
      </table>
      {[...plan.notes, plan.legend].filter(Boolean).map(note => (
        <p key={note} className="jp-wg-detail">
          {note}
        </p>
      ))}
    </>
  );
}
