/** The status bar item: how the server is, and how many findings the file in sight has. */

import * as vscode from 'vscode';

import { spelled } from './find';
import { findingsInSight } from './findings';
import type { Server } from './server';

export class Status implements vscode.Disposable {
    private readonly item = vscode.window.createStatusBarItem('gradlint.status', vscode.StatusBarAlignment.Left);
    private readonly watching: vscode.Disposable;

    constructor(private readonly server: Server) {
        const show = (): void => {
            this.show();
        };
        this.item.name = 'gradlint';
        this.watching = vscode.Disposable.from(
            server.onDidChange(show),
            vscode.languages.onDidChangeDiagnostics(show),
            vscode.window.tabGroups.onDidChangeTabs(show),
            vscode.window.tabGroups.onDidChangeTabGroups(show),
            // A tab may be there before its document is.
            vscode.workspace.onDidOpenTextDocument(show),
        );
        show();
    }

    dispose(): void {
        this.watching.dispose();
        this.item.dispose();
    }

    private show(): void {
        const { state } = this.server;
        this.item.backgroundColor = undefined;
        this.item.command = 'gradlint.showOutput';
        switch (state.kind) {
            case 'off':
                this.item.hide();
                return;
            case 'starting':
                this.item.text = '$(loading~spin) gradlint';
                this.item.tooltip = 'gradlint is starting';
                break;
            case 'stopped':
                this.item.text = '$(error) gradlint';
                this.item.tooltip = `gradlint has stopped: ${state.why}`;
                this.item.backgroundColor = new vscode.ThemeColor('statusBarItem.warningBackground');
                break;
            case 'ready':
                this.ready(findingsInSight(), `gradlint ${state.gradlint.version}: ${spelled(state.gradlint)}`);
                break;
        }
        this.item.show();
    }

    private ready(count: number | undefined, what: string): void {
        if (count === undefined) {
            this.item.text = '$(check) gradlint';
            this.item.tooltip = what;
            return;
        }
        const told = count === 0 ? 'no findings' : count === 1 ? '1 finding' : `${count} findings`;
        this.item.text = count === 0 ? '$(check) gradlint' : `$(warning) gradlint: ${count}`;
        this.item.tooltip = `${told} in this file\n${what}`;
        this.item.command = 'workbench.actions.view.problems';
    }
}
