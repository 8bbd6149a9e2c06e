/** Reads server-sent events out of pieces of text, however they are cut. */

export interface Message {
  id: string;
  data: string;
}

export class EventReader {
  private rest = '';

  /** The messages that are whole with this piece; comments and the name of the event go. */
  read(piece: string): Message[] {
    const blocks = (this.rest + piece).split('\n\n');
    this.rest = blocks.pop() ?? '';
    return blocks.map(parsed).filter(message => message.data !== '');
  }
}

function parsed(block: string): Message {
  const message: Message = { id: '', data: '' };
  for (const line of block.split('\n')) {
    const [, field, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
    if (field === 'id') {
      message.id = value ?? '';
    } else if (field === 'data') {
      message.data += value ?? '';
    }
  }
  return message;
}
