// SPDX-License-Identifier: Apache-2.0

// Package tutorials extracts the commands of tutorials, with the output that they show. Its tests run them.
//
// A tutorial's commands are in its indented blocks. A line that begins with "$ " is a command, as far as its last
// line continued by a backslash; the lines below it, up to the next command or the end of the block, are its
// output. A block in which every line begins with a word of commandWords is a list of commands without
// output. Other indented blocks show the end of an output.
//
// A fenced block whose info string has a second word, as in "hcl main.tf", is a file that the reader writes.
package tutorials

import (
	"regexp"
	"slices"
	"strings"
)

// Command is a command of a tutorial.
type Command struct {
	// Line is the line of the document in which it begins.
	Line int
	// Text is what a reader types; it may have several lines.
	Text string
	// Output has the lines that the document shows below it; "…" stands for omitted ones.
	Output []string
}

// commandWords are the first words of commands in blocks without prompts.
func commandWords() []string {
	return []string{"slipway", "export", "make", "terraform", "apt", "cd", "mkdir", "kubectl", "aws"}
}

// Parse returns the commands of a document in Markdown, in order.
func Parse(document string) []Command {
	p := parser{}
	lines := append(strings.Split(document, "\n"), "")
	for i, line := range lines {
		if rest, fence := strings.CutPrefix(line, "```"); fence {
			p.endBlock()
			p.toggleFence(rest, i+1)
			continue
		}

		if p.fenced {
			p.addToFile(line)
			continue
		}

		text, indented := strings.CutPrefix(line, "    ")
		blankInside := line == "" && i+1 < len(lines) && strings.HasPrefix(lines[i+1], "    ")
		switch {
		case indented:
			p.addToBlock(text, i+1)
		case blankInside && len(p.block) > 0:
			p.addToBlock("", i+1)
		default:
			p.endBlock()
		}
	}

	return p.commands
}

// parser is the state of one [Parse].
type parser struct {
	commands []Command
	block    []string // the indented block so far
	start    int      // its first line in the document
	fenced   bool
	file     *Command // the file of a fenced block; nil if it shows none that the reader writes
}

func (p *parser) addToBlock(text string, line int) {
	if len(p.block) == 0 {
		p.start = line
	}

	p.block = append(p.block, text)
}

func (p *parser) endBlock() {
	p.commands = append(p.commands, parseBlock(p.block, p.start)...)
	p.block = nil
}

const endOfFile = "end-of-file"

// toggleFence begins or ends a fenced block. info is the text after the fence.
func (p *parser) toggleFence(info string, line int) {
	p.fenced = !p.fenced
	if p.file != nil {
		p.file.Text += endOfFile
		p.commands = append(p.commands, *p.file)
		p.file = nil
	}

	if _, name, ok := strings.Cut(info, " "); ok && p.fenced {
		p.file = &Command{Line: line, Text: "cat >" + name + " <<'" + endOfFile + "'\n"}
	}
}

func (p *parser) addToFile(line string) {
	if p.file != nil {
		p.file.Text += line + "\n"
	}
}

// parseBlock returns the commands of a block whose first line is line start of the document.
func parseBlock(block []string, start int) []Command {
	hasPrompt := slices.ContainsFunc(block, func(s string) bool { return strings.HasPrefix(s, "$ ") })
	if !hasPrompt && !isCommandList(block) {
		return nil
	}

	var out []Command
	continued := false
	for i, line := range block {
		text, prompt := strings.CutPrefix(line, "$ ")
		switch {
		case continued:
			last := &out[len(out)-1]
			last.Text += "\n" + line
		case prompt || !hasPrompt && line != "":
			out = append(out, Command{Line: start + i, Text: text})
		case line != "" && len(out) > 0:
			last := &out[len(out)-1]
			last.Output = append(last.Output, line)
			continue
		}

		continued = len(out) > 0 && strings.HasSuffix(line, "\\")
	}

	return out
}

// isCommandList reports whether every line of a block begins with the name of a command.
func isCommandList(block []string) bool {
	for _, line := range block {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if line != "" && !slices.Contains(commandWords(), word) {
			return false
		}
	}

	return len(block) > 0
}

// Missing returns the lines of c.Output that are not in the actual output, after both were normalized. Lines
// about what is still going on depend on the speed of the machine and are not compared.
func (c Command) Missing(actual string) []string {
	have := map[string]int{}
	var haveLines []string
	for line := range strings.Lines(actual) {
		line = Normalize(line)
		have[line]++
		haveLines = append(haveLines, line)
	}

	var missing []string
	for _, shown := range c.Output {
		if strings.TrimSpace(shown) == "…" || isProgress(shown) {
			continue
		}

		line := Normalize(shown)
		if strings.Contains(line, "…") {
			pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + "$")
			if !slices.ContainsFunc(haveLines, pattern.MatchString) {
				missing = append(missing, shown)
			}

			continue
		}

		if have[line] == 0 {
			missing = append(missing, shown)
		}

		have[line]--
	}

	return missing
}

// isProgress reports whether a line is about what is still going on.
func isProgress(line string) bool {
	return regexp.MustCompile(`waiting: |still (creating|changing|deleting)|slipway-node: \{`).MatchString(line)
}

// Normalize replaces what differs between two runs: identities, addresses, times, durations, counters and
// hashes. It also removes the indentation, and makes one blank of several.
func Normalize(line string) string {
	for _, r := range []struct{ pattern, by string }{
		{`[│╷╵]`, ""},           // frames
		{"\x1b\\[[0-9;]*m", ""}, // colours
		{`\b(ip(-\d+){4}|i-[0-9a-f]{17})\.ec2\.internal\b`, "NODE"},
		{`\b(i|vol|sg|sgr|subnet|vpc|lt|ami|eni|eipalloc)-[0-9a-f]{8,}…?`, "$1-ID"},
		{`\b[0-9a-f]{8,10}-[a-z0-9]{5}\b`, "POD"},
		{`\bip-\d+-\d+-\d+-\d+\b`, "ip-N"},
		{`http://\d+\.\d+\.\d+\.\d+:\d+`, "http://ADDRESS"},
		{`\b\d+\.\d+\.\d+\.\d+(:\d+)?\b`, "ADDRESS"},
		{`\b[0-9a-f]{8,}…?`, "HASH"},
		{`\bprocess \d+`, "process N"},
		{`is healthy \(\d+ warnings?\)`, "is healthy"},
		{`\bline \d+`, "line N"},
		{`^\s*\d+:(\s+")`, "N:$1"},
		{`\d\d\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`, "TIME"},
		{`\[(\d+h)?(\d+m)?[\d.]+(ms|s|µs)\]`, "[T]"},
		{`\bin (\d+m)?[\d.]+(ms|s)\b`, "in T"},
		{`^\s*\d+/(\d+) `, "N/$1 "},
		{`\b(\d+d)?(\d+h)?(\d+m)?\d+s\b`, "T"},
		{`\b\d+m\b`, "T"},
		{`\$\d+\.\d\d`, "$$N"},
		{`\s+`, " "},
	} {
		line = regexp.MustCompile(r.pattern).ReplaceAllString(line, r.by)
	}

	return strings.TrimSpace(line)
}
