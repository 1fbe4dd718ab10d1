// Stands in for the reference server's `index.ts`, so that its own tests drive `keyword-tree-mcp` through the SDK's
// TypeScript client, over stdin and stdout. Each manager starts a server; its file becomes a folder beside it.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

export interface Entity { name: string; entityType: string; observations: string[] }
export interface Relation { from: string; to: string; relationType: string }
export interface KnowledgeGraph { entities: Entity[]; relations: Relation[] }

const [command, ...args] = JSON.parse(process.env.KEYWORD_TREE_MCP ?? '["keyword-tree-mcp"]');

export class KnowledgeGraphManager {
  private client: Promise<Client>;

  constructor(memoryFilePath: string) {
    // Tests start within the same millisecond, and a folder, unlike a file, is not unlinked between them.
    const test = (globalThis as any).expect?.getState?.().currentTestName ?? '';
    const folder = memoryFilePath + '-' + Buffer.from(test).toString('hex').slice(-100);
    const client = new Client({ name: 'reference-tests', version: '1.0.0' });
    const transport = new StdioClientTransport({ command, args: [...args, folder], env: process.env as any });
    this.client = client.connect(transport).then(() => client);
  }

  private async call(name: string, input: object): Promise<any> {
    const result: any = await (await this.client).callTool({ name, arguments: input as any });
    if (result.isError) throw new Error(result.content[0].text);
    return result.structuredContent;
  }

  async createEntities(entities: Entity[]) { return (await this.call('create_entities', { entities })).entities; }
  async createRelations(relations: Relation[]) { return (await this.call('create_relations', { relations })).relations; }
  async addObservations(observations: object[]) { return (await this.call('add_observations', { observations })).results; }
  async deleteEntities(entityNames: string[]) { await this.call('delete_entities', { entityNames }); }
  async deleteObservations(deletions: object[]) { await this.call('delete_observations', { deletions }); }
  async deleteRelations(relations: Relation[]) { await this.call('delete_relations', { relations }); }
  async readGraph(): Promise<KnowledgeGraph> { return this.call('read_graph', {}); }
  async searchNodes(query: string): Promise<KnowledgeGraph> { return this.call('search_nodes', { query }); }
  async openNodes(names: string[]): Promise<KnowledgeGraph> { return this.call('open_nodes', { names }); }
}
