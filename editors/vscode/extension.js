// Starts `ptir lsp` and connects the editor with it.
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = () => {
  const command = workspace.getConfiguration("ptir").get("command");
  const documents = ["ptir", "pto", "mind"].map((language) => ({ language }));
  client = new LanguageClient("ptir", "PTIR", { command, args: ["lsp"] }, { documentSelector: documents });
  return client.start();
};

exports.deactivate = () => client && client.stop();
