import { ReactWidget } from '@jupyterlab/apputils';
import React, { useState } from 'react';
import type { Desk } from '../desk';
import { span } from '../format';
import { gpuIcon } from '../icon';
import type { Room } from '../room';
import { DoingHere } from './Doing';
import { Guard } from './Guard';
import { useNow, useRoom } from './hooks';
import { LogTab } from './LogTab';
import { ModelsTab } from './ModelsTab';
import { Now } from './Now';
import { PeopleTab } from './PeopleTab';
import { RoomTab } from './RoomTab';

/** The side panel "GPU". While nobody sees it, it draws nothing. */
export class GPUPanel extends ReactWidget {
  static readonly id = 'workshop-gpu-panel';

  constructor(private readonly desk: Desk) {
    super();
    this.id = GPUPanel.id;
    this.addClass('jp-wg-panel');
    this.title.icon = gpuIcon;
    this.title.caption = desk.trans.__('GPU: who uses it, who waits');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', desk.trans.__('GPU'));
  }

  protected override onAfterShow(): void {
    this.update();
  }

  protected override onAfterHide(): void {
    this.update();
  }

  render(): JSX.Element {
    if (!this.isVisible) {
      return <></>;
    }
    return (
      <Guard trans={this.desk.trans}>
        <Body desk={this.desk} />
      </Guard>
    );
  }
}

function Body({ desk }: { desk: Desk }) {
  const { room } = useRoom(desk.stream);
  return (
    <>
      <LinkNote desk={desk} />
      {room?.message && <p className="jp-wg-message">{room.message.text}</p>}
      {room && (room.me.admin ? <Tabs desk={desk} room={room} /> : <Now desk={desk} room={room} />)}
    </>
  );
}

/** Says how old what one sees is, where it is not live. */
function LinkNote({ desk }: { desk: Desk }) {
  const { link, room } = useRoom(desk.stream);
  const now = useNow();
  const { trans } = desk;
  if (link === 'live') {
    return null;
  }
  const age = room ? span(now - desk.stream.heardAt) : '';
  const words =
    link === 'connecting'
      ? trans.__('Connecting …')
      : desk.stream.problem
        ? desk.stream.problem
        : room
          ? trans.__('No connection to the server. What you see is %1 old; trying again …', age)
          : trans.__('The server does not answer; trying again …');
  return (
    <p className={`jp-wg-note jp-wg-link${link === 'lost' ? ' jp-mod-warn' : ''}`} role="status">
      {words}
    </p>
  );
}

const TABS = { now: Now, room: RoomTab, people: PeopleTab, models: ModelsTab, log: LogTab };
type Tab = keyof typeof TABS;

/** What an instructor has beside the view that all have. */
function Tabs({ desk, room }: { desk: Desk; room: Room }) {
  const { trans } = desk;
  const [tab, show] = useState<Tab>(desk.tab as Tab);
  const setTab = (next: Tab) => {
    desk.tab = next;
    show(next);
  };
  const names: [Tab, string][] = [
    ['now', trans.__('Now')],
    ['room', room.help.length ? trans.__('Room (%1)', room.help.length) : trans.__('Room')],
    ['people', trans.__('People')],
    ['models', trans.__('Models')],
    ['log', trans.__('Log')]
  ];
  const step = (by: number) => {
    const at = names.findIndex(([each]) => each === tab);
    const next = names[(at + by + names.length) % names.length]?.[0] ?? 'now';
    setTab(next);
    document.getElementById(tabId(next))?.focus();
  };
  const Shown = TABS[tab];
  return (
    <DoingHere desk={desk}>
      <div
        role="tablist"
        className="jp-wg-tabs"
        onKeyDown={event => {
          if (event.key === 'ArrowRight' || event.key === 'ArrowLeft') {
            step(event.key === 'ArrowRight' ? 1 : -1);
          }
        }}
      >
        {names.map(([each, name]) => (
          <button
            key={each}
            id={tabId(each)}
            type="button"
            role="tab"
            aria-selected={each === tab}
            tabIndex={each === tab ? 0 : -1}
            onClick={() => setTab(each)}
          >
            {name}
          </button>
        ))}
      </div>
      <div role="tabpanel" aria-labelledby={tabId(tab)}>
        <Shown desk={desk} room={room} />
      </div>
    </DoingHere>
  );
}

const tabId = (tab: Tab): string => `workshop-gpu-tab-${tab}`;
