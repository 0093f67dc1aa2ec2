// SPDX-License-Identifier: Apache-2.0

// Package yamltext finds what a person needs to correct a YAML file: the line and column of a
// syntax error with its cause in plain words, and the line and column of a field. It splits a
// stream into documents. It decodes nothing and knows no schema.
package yamltext

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Position is a place in a file. Lines and columns start at 1; a zero Line means unknown.
type Position struct {
	// Line in the file, not in the document.
	Line int
	// Column in characters.
	Column int
}

// Problem is why a document is not valid YAML.
type Problem struct {
	// At is where the problem was noticed.
	At Position
	// Message completes a sentence that begins with the document: "has a tab as indentation".
	Message string
	// Hint is how to fix it.
	Hint string
}

// Document is one document of a stream.
type Document struct {
	// Text is the document without separators. It begins at the start of a line.
	Text []byte
	// FirstLine is the line of the file in which Text begins.
	FirstLine int

	root *yaml.Node // nil before Parse and for an invalid document
}

// Split returns the documents of a stream that contain more than comments. A line that begins with
// "---" starts a document.
func Split(text []byte) []Document {
	var out []Document
	var now strings.Builder
	first := 1
	line := 0

	flush := func(next int) {
		if !isBlank(now.String()) {
			out = append(out, Document{Text: []byte(now.String()), FirstLine: first})
		}

		now.Reset()
		first = next
	}

	for content := range strings.Lines(string(text)) {
		line++
		rest, found := strings.CutPrefix(content, "---")
		if !found || strings.TrimLeft(rest, " \t\r\n") == rest && rest != "" {
			now.WriteString(content)
			continue
		}

		flush(line)
		now.WriteString("   " + rest) // "--- {a: b}" keeps its columns
	}

	flush(line + 1)

	return out
}

// isBlank reports whether a text consists of comments and empty lines only.
func isBlank(text string) bool {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			return false
		}
	}

	return true
}

// Parse returns the document with the positions of its fields, or the first problem of its syntax. A
// key that is given twice is a problem.
func (d Document) Parse() (Document, *Problem) {
	if problem := d.findTab(); problem != nil {
		return d, problem
	}

	var root yaml.Node

	if err := yaml.Load(d.Text, &root); err != nil {
		return d, d.explain(err)
	}

	d.root = &root
	if root.Kind == yaml.DocumentNode && len(root.Content) > 0 {
		d.root = root.Content[0]
	}

	if problem := d.findDuplicate(d.root); problem != nil {
		return d, problem
	}

	return d, nil
}

// findTab returns a problem if the first line that is indented with a tab is not part of a text.
func (d Document) findTab() *Problem {
	line := 0
	for content := range strings.Lines(string(d.Text)) {
		line++
		indent := content[:len(content)-len(strings.TrimLeft(content, " \t"))]
		column := strings.IndexByte(indent, '\t')
		if column < 0 || strings.TrimSpace(content) == "" {
			continue
		}

		if yaml.Load(d.Text, new(yaml.Node)) == nil {
			return nil // the tab is inside a block of text, where it is allowed
		}

		return &Problem{
			At:      Position{Line: d.FirstLine + line - 1, Column: column + 1},
			Message: "has a tab as indentation, which YAML does not allow",
			Hint:    "indent with spaces",
		}
	}

	return nil
}

// explain returns the problem that err of the YAML library describes.
func (d Document) explain(err error) *Problem {
	load, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		return &Problem{
			At:      Position{Line: d.FirstLine},
			Message: "is not valid YAML",
			Hint:    "compare it with an example of the documentation",
		}
	}

	problem := describe(load.Message, load.ContextMsg)
	mark := load.Mark
	if problem.atContext && load.ContextMark.Line > 0 {
		mark = load.ContextMark
	}

	at := Position{Line: d.FirstLine + max(mark.Line, 1) - 1, Column: max(mark.Column, 1)}
	if problem.isNoText { // the library gives no position for it
		at = d.findControlCharacter(at)
	}

	return &Problem{At: at, Message: problem.message, Hint: problem.hint}
}

// findControlCharacter returns the position of the first character that is not text, or else at.
func (d Document) findControlCharacter(at Position) Position {
	line := d.FirstLine
	for content := range strings.Lines(string(d.Text)) {
		column := 0
		for _, r := range content {
			column++
			if r == utf8.RuneError || r < ' ' && !strings.ContainsRune("\t\r\n", r) || r == '\x7f' {
				return Position{Line: line, Column: column}
			}
		}

		line++
	}

	return at
}

// findDuplicate returns a problem for the first key that a mapping below node contains twice.
func (d Document) findDuplicate(node *yaml.Node) *Problem {
	if node == nil {
		return nil
	}

	if node.Kind == yaml.MappingNode {
		seen := map[string]*yaml.Node{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i]
			if before := seen[key.Value]; before != nil && key.Kind == yaml.ScalarNode && key.Value != "<<" {
				return &Problem{
					At: d.positionOf(key),
					Message: "has the field " + key.Value + " twice; first in line " +
						strconv.Itoa(d.positionOf(before).Line),
					Hint: "remove one of them",
				}
			}

			seen[key.Value] = key
		}
	}

	for _, child := range node.Content {
		if problem := d.findDuplicate(child); problem != nil {
			return problem
		}
	}

	return nil
}

func (d Document) positionOf(node *yaml.Node) Position {
	return Position{Line: d.FirstLine + node.Line - 1, Column: node.Column}
}

// Find returns the position of a field by its path, such as spec.subnets[2].zone or
// labels[example.com/team], or of the deepest field above it that exists. It returns the zero
// Position for a document that is not parsed or has no such first field.
func (d Document) Find(path string) Position {
	at := Position{}
	node := d.root

	for _, name := range splitPath(path) {
		key, value := child(node, name)
		if value == nil {
			return at
		}

		at = d.positionOf(key)
		node = value
	}

	return at
}

// Value returns the text of the scalar at a path, and "" if there is none.
func (d Document) Value(path string) string {
	node := d.root
	for _, name := range splitPath(path) {
		_, node = child(node, name)
	}

	if node == nil || node.Kind != yaml.ScalarNode {
		return ""
	}

	return node.Value
}

// child returns the key and the value of a field or an item; nil if there is none. The key of an item is
// the item.
func child(node *yaml.Node, name string) (key, value *yaml.Node) {
	if node != nil && node.Kind == yaml.AliasNode {
		node = node.Alias
	}

	if node == nil {
		return nil, nil
	}

	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == name {
				return node.Content[i], node.Content[i+1]
			}
		}

	case yaml.SequenceNode:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i]
		}

	default:
	}

	return nil, nil
}

// splitPath returns the names of a path: dots separate them, and brackets enclose those of items and of
// keys that contain dots.
func splitPath(path string) []string {
	var out []string
	var name strings.Builder
	inside := false

	flush := func() {
		if name.Len() > 0 {
			out = append(out, name.String())
			name.Reset()
		}
	}

	for _, r := range path {
		switch {
		case r == '[' && !inside:
			flush()
			inside = true
		case r == ']' && inside:
			flush()
			inside = false
		case r == '.' && !inside:
			flush()
		default:
			name.WriteRune(r)
		}
	}

	flush()

	return out
}

// Field is a field at the top of a document.
type Field struct {
	// Name of the field.
	Name string
	// Value is the text of a scalar; empty for null and for what is no scalar.
	Value string
	// IsScalar reports whether the value is one text or number.
	IsScalar bool
	// At is where the field begins, and ValueAt where its value does.
	At, ValueAt Position
}

// Fields returns the fields of a parsed document in their order, and whether it is a mapping.
func (d Document) Fields() ([]Field, bool) {
	if d.root == nil || d.root.Kind != yaml.MappingNode {
		return nil, false
	}

	var out []Field
	for i := 0; i+1 < len(d.root.Content); i += 2 {
		key := d.root.Content[i]
		value := d.root.Content[i+1]
		field := Field{
			Name:     key.Value,
			IsScalar: value.Kind == yaml.ScalarNode,
			At:       d.positionOf(key),
			ValueAt:  d.positionOf(value),
		}
		if field.IsScalar && value.ShortTag() != "!!null" {
			field.Value = value.Value
		}

		out = append(out, field)
	}

	return out, true
}
