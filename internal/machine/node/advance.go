// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// pathSeparator separates the keys of a path, because keys contain dots.
const pathSeparator = "\x00"

// leaf is one setting of a document.
type leaf string

// path returns the keys of the setting.
func (l leaf) path() []string { return strings.Split(string(l), pathSeparator) }

// change returns a change of the setting.
func (l leaf) change() Change {
	rule := ruleFor(l.path())

	return Change{Setting: strings.Join(l.path(), "."), Class: rule.Class, Restarts: rule.Restarts}
}

// flatten returns the settings of a document. Lists of named items, files and slots, become maps by name; other
// lists are one setting.
func flatten(d Document) (map[leaf]any, error) {
	tree, err := toTree(d)
	if err != nil {
		return nil, err
	}

	out := map[leaf]any{}
	var walk func(prefix string, value any)
	walk = func(prefix string, value any) {
		object, ok := value.(map[string]any)
		if !ok {
			out[leaf(prefix)] = value
			return
		}

		for key, item := range object {
			path := key
			if prefix != "" {
				path = prefix + pathSeparator + key
			}

			walk(path, item)
		}
	}

	walk("", tree)

	return out, nil
}

// namedLists are the lists of the document whose items have names.
func namedLists() []string { return []string{"files", "slots"} }

// toTree returns a document as JSON objects, with lists of named items as objects.
func toTree(d Document) (map[string]any, error) {
	body, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode node document of group %s: %w", d.Group, err)
	}

	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	tree := map[string]any{}
	if err := decoder.Decode(&tree); err != nil {
		return nil, fmt.Errorf("decode node document of group %s: %w", d.Group, err)
	}

	for _, name := range namedLists() {
		items, _ := tree[name].([]any)
		byName := map[string]any{}
		for _, item := range items {
			object, _ := item.(map[string]any)
			byName[fmt.Sprint(object["name"])] = object
		}

		tree[name] = byName
	}

	return tree, nil
}

// fromTree is the reverse of toTree.
func fromTree(tree map[string]any) (Document, error) {
	for _, name := range namedLists() {
		byName, _ := tree[name].(map[string]any)
		items := make([]any, 0, len(byName))
		for _, key := range slices.Sorted(maps.Keys(byName)) {
			items = append(items, byName[key])
		}

		tree[name] = items
	}

	body, err := json.Marshal(tree)
	if err != nil {
		return Document{}, fmt.Errorf("encode node document: %w", err)
	}

	return ParseDocument(body)
}

// differences returns the settings that only one of the documents has or that differ, sorted.
func differences(old, now map[leaf]any) []leaf {
	var out []leaf
	for l, value := range old {
		if other, ok := now[l]; !ok || !equalJSON(value, other) {
			out = append(out, l)
		}
	}

	for l := range now {
		if _, ok := old[l]; !ok {
			out = append(out, l)
		}
	}

	slices.Sort(out)

	return out
}

func equalJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)

	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// Advance returns the document that a machine with document current can have without being replaced, when desired is
// wanted: current with all changes that it can apply itself. The pending changes need a new machine; without any,
// the result is desired.
func Advance(current, desired Document) (next Document, pending []Change, err error) {
	if err := checkSlotNames(current, desired); err != nil {
		return Document{}, nil, err
	}

	changes, err := Compare(current, desired)
	if err != nil {
		return Document{}, nil, err
	}

	for _, c := range changes {
		if c.NeedsMachine() {
			pending = append(pending, c)
		}
	}

	switch {
	case len(pending) == 0:
		return desired, nil, nil
	case len(pending) == len(changes):
		return current, pending, nil
	}

	next, err = mergeChanges(current, desired, func(l leaf) bool { return !l.change().NeedsMachine() })

	return next, pending, err
}

// AdvanceFirst returns current with those changes of desired that a machine applies before it waits for its turn to restart
// components; see [FieldRule.First].
func AdvanceFirst(current, desired Document) (Document, error) {
	return mergeChanges(current, desired, func(l leaf) bool { return ruleFor(l.path()).First })
}

// mergeChanges returns current with the changed settings of desired that are picked.
func mergeChanges(current, desired Document, isPicked func(leaf) bool) (Document, error) {
	before, err := flatten(current)
	if err != nil {
		return Document{}, err
	}

	after, err := flatten(desired)
	if err != nil {
		return Document{}, err
	}

	tree, err := toTree(current)
	if err != nil {
		return Document{}, err
	}

	for _, l := range differences(before, after) {
		if !isPicked(l) {
			continue
		}

		value, ok := after[l]
		setPath(tree, l.path(), value, ok)
	}

	return fromTree(tree)
}

// setPath sets or removes a value in a tree of objects. It creates the objects on the way, and removes those that become empty:
// an item of a list without a name is none.
func setPath(tree map[string]any, path []string, value any, exists bool) {
	if !exists {
		removePath(tree, path)
		return
	}

	for _, key := range path[:len(path)-1] {
		child, ok := tree[key].(map[string]any)
		if !ok {
			child = map[string]any{}
			tree[key] = child
		}

		tree = child
	}

	tree[path[len(path)-1]] = value
}

// removePath removes a value, and the objects on the way that become empty.
func removePath(tree map[string]any, path []string) {
	if len(path) > 1 {
		child, ok := tree[path[0]].(map[string]any)
		if !ok {
			return
		}

		removePath(child, path[1:])
		if len(child) > 0 {
			return
		}
	}

	delete(tree, path[0])
}
