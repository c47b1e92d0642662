-- Checks what Neovim shows of the open file; its `# want NAME at TEXT` marks say what that must be.
-- Runs once the file is open and the server is set up; any failure ends Neovim with exit code 1.

local function fail(what)
  io.stderr:write(what .. "\n")
  vim.cmd("cquit 1")
end

-- Neovim ends with exit code 0 after an error in a script: so errors are caught.
local function check()
  local function wanted()
    local marks = {}
    for number, line in ipairs(vim.api.nvim_buf_get_lines(0, 0, -1, false)) do
      local name, text = line:match("# want ([%w-]+) at (.*)$")
      if name then
        local start = line:find(text, 1, true)
        table.insert(marks, ("%s %d:%d-%d"):format(name, number, start, start + #text))
      end
    end
    table.sort(marks)
    return table.concat(marks, "; ")
  end

  local function shown()
    local all = {}
    for _, one in ipairs(vim.diagnostic.get(0)) do
      assert(one.source == "gradlint", "source: " .. tostring(one.source))
      assert(one.lnum == one.end_lnum, "a finding on several lines")
      local code = one.code or one.user_data.lsp.code
      table.insert(all, ("%s %d:%d-%d"):format(code, one.lnum + 1, one.col + 1, one.end_col + 1))
    end
    table.sort(all)
    return table.concat(all, "; ")
  end

  local function settle(what)
    vim.wait(60000, function() return shown() == wanted() end, 50)
    assert(shown() == wanted(), ("%s: want %s, got %s"):format(what, wanted(), shown()))
  end

  local function replace(pattern, new)
    for number, line in ipairs(vim.api.nvim_buf_get_lines(0, 0, -1, false)) do
      local start = line:find(pattern, 1, true)
      if start then
        local after = line:sub(1, start - 1) .. new .. line:sub(start + #pattern)
        vim.api.nvim_buf_set_lines(0, number - 1, number, false, { after })
        return
      end
    end
    error("no " .. pattern)
  end

  local function diagnostic(name)
    for _, one in ipairs(vim.diagnostic.get(0)) do
      if (one.code or one.user_data.lsp.code) == name then
        return one
      end
    end
    error("no " .. name)
  end

  local function ask(method, params)
    local answers = assert(vim.lsp.buf_request_sync(0, method, params, 60000), method .. ": no answer")
    for _, answer in pairs(answers) do
      assert(not answer.err, method .. ": " .. vim.inspect(answer.err))
      return answer.result
    end
  end

  local get_clients = vim.lsp.get_clients or vim.lsp.get_active_clients
  settle("opened")
  local client = get_clients()[1]
  assert(#get_clients() == 1 and client.name == "gradlint", "one client")

  -- The chain of reasons, and the page on hover.
  local mutated = diagnostic("saved-tensor-mutated")
  assert(mutated.message:find("instead: ", 1, true), mutated.message)
  assert(#mutated.user_data.lsp.relatedInformation == 3, "three reasons")
  vim.api.nvim_win_set_cursor(0, { mutated.lnum + 1, mutated.col })
  local encoding = client.offset_encoding
  local hover = ask("textDocument/hover", vim.lsp.util.make_position_params(0, encoding))
  assert(hover.contents.value:find("kept for backward here", 1, true), vim.inspect(hover))

  -- Edits.
  replace("y.add_(1)  # want saved-tensor-mutated at y.add_(1)", "y.mul_(2)  # want saved-tensor-mutated at y.mul_(2)")
  settle("edited")
  replace("label = '🔥é'", "label = 'é🔥🔥'")
  settle("moved")

  -- All safe repairs.
  replace("  # want live-graph-kept at losses.append(loss)", "")
  if vim.fn.has("nvim-0.8") == 1 then
    vim.lsp.buf.code_action({ context = { only = { "source.fixAll.gradlint" }, diagnostics = {} }, apply = true })
  else
    local params = vim.lsp.util.make_range_params(0, encoding)
    params.context = { only = { "source.fixAll.gradlint" }, diagnostics = {} }
    vim.lsp.util.apply_workspace_edit(ask("textDocument/codeAction", params)[1].edit, encoding)
  end
  settle("repaired")
  -- It is there, or this fails.
  replace("losses.append(loss.detach())", "losses.append(loss.detach()) ")

  -- A code action.
  local dropped = diagnostic("dropped-result")
  vim.api.nvim_win_set_cursor(0, { dropped.lnum + 1, dropped.col })
  if vim.fn.has("nvim-0.8") == 1 then
    local function allow(action) return action.title == "Allow dropped-result here" end
    vim.lsp.buf.code_action({ filter = allow, apply = true })
  else
    local params = vim.lsp.util.make_range_params(0, encoding)
    params.context = { diagnostics = vim.lsp.diagnostic.get_line_diagnostics() }
    for _, action in ipairs(ask("textDocument/codeAction", params)) do
      if action.title == "Allow dropped-result here" then
        vim.lsp.util.apply_workspace_edit(action.edit, encoding)
      end
    end
  end
  local allowed = "# gradlint: allow[dropped-result]"
  local function has_comment()
    return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), "\n"):find(allowed, 1, true)
  end
  vim.wait(60000, has_comment, 50)
  assert(has_comment(), "the comment is not there")
  replace("# want dropped-result at x.abs()", "")
  settle("allowed")
end

local passed, message = pcall(check)
if not passed then
  fail(tostring(message))
end
vim.cmd("quitall!")
