// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The formats of 'slipway get' besides those of all commands.
const (
	formatWide = "wide"
	formatName = "name"
)

// watchInterval is the pause between two readings of --watch.
const watchInterval = 2 * time.Second

// getOptions are the flags of every get command.
type getOptions struct {
	name, format string
	watch        bool
}

// resourceList is what one get command lists, of one kind.
type resourceList struct {
	kind   string   // singular, such as machine, for -o name
	header []string // of the table
	wide   []string // further columns of -o wide
	empty  string   // what to print if there are none
	items  []resourceItem
}

// resourceItem is one item of such a list.
type resourceItem struct {
	name     string // without its kind
	cells    []string
	wide     []string // cells of the further columns
	document any      // for JSON and YAML
	// signature differs if --watch has to print the item again. Empty: the document as JSON.
	signature string
}

// listFunc reads what a get command lists.
type listFunc func(ctx context.Context) ([]resourceList, error)

// lister prints lists of objects, once or whenever they change.
type lister struct{ *app }

// runGet prints what list returns; with --watch again whenever it changes, until the command is interrupted.
func (a lister) runGet(ctx context.Context, o getOptions, list listFunc) error {
	if !slices.Contains([]string{formatTable, formatWide, formatJSON, formatYAML, formatName}, o.format) {
		return withHint(
			fmt.Errorf("output format %q is not known", o.format),
			"use -o table, wide, json, yaml or name",
		)
	}

	lists, err := list(ctx)
	if err != nil {
		return err
	}

	if err := a.printLists(o, lists); err != nil || !o.watch {
		return err
	}

	return a.watchLists(ctx, o, list, lists)
}

// printLists prints all items.
func (a lister) printLists(o getOptions, lists []resourceList) error {
	switch o.format {
	case formatJSON, formatYAML:
		var docs []any
		for _, l := range lists {
			for _, i := range l.items {
				docs = append(docs, i.document)
			}
		}

		return a.printDocuments(o.format, docs, o.name != "" && len(lists) == 1 && lists[0].kind == "cluster")

	case formatName:
		for _, l := range lists {
			for _, i := range l.items {
				fmt.Fprintln(a.Stdout, l.kind+"/"+i.name)
			}
		}

		return nil
	}

	printed := false
	for _, l := range lists {
		if len(l.items) == 0 {
			a.printMessage("%s", l.empty)
			continue
		}

		if printed {
			fmt.Fprintln(a.Stdout)
		}

		a.printListTable(o, l, len(lists) > 1, true)
		printed = true
	}

	return nil
}

// printListTable prints a list as a table. Among lists of several kinds, names are printed with their kind.
func (a lister) printListTable(o getOptions, l resourceList, withKind, withHeader bool) {
	header := l.header
	if o.format == formatWide {
		header = slices.Concat(header, l.wide)
	}

	var rows [][]string
	for _, i := range l.items {
		cells := slices.Clone(i.cells)
		if o.format == formatWide {
			cells = append(cells, i.wide...)
		}

		if withKind {
			cells[0] = l.kind + "/" + cells[0]
		}

		rows = append(rows, cells)
	}

	if withHeader {
		a.printTable(header, rows)
	} else {
		a.printRows(rows, columnWidths(append([][]string{header}, rows...)))
	}
}

// watchLists prints the items that change, until ctx ends. A reading that fails is reported, and repeated.
func (a lister) watchLists(ctx context.Context, o getOptions, list listFunc, last []resourceList) error {
	failure := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchInterval):
		}

		lists, err := list(ctx)
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil
		}

		if err != nil {
			if err.Error() != failure {
				failure = err.Error()
				a.printMessage("%s; trying again", failure)
			}

			continue
		}

		failure = ""
		if err := a.printChangedItems(o, last, lists); err != nil {
			return err
		}

		last = lists
	}
}

// printChangedItems prints the items of now that are new or differ from last, and in tables also those that
// have disappeared.
func (a lister) printChangedItems(o getOptions, last, now []resourceList) error {
	for k, l := range now {
		var before resourceList
		if k < len(last) {
			before = last[k]
		}

		changed := l
		changed.items = changedItems(before.items, l.items)
		if len(changed.items) == 0 {
			continue
		}

		if o.format == formatTable || o.format == formatWide {
			a.printListTable(o, changed, len(now) > 1, len(before.items) == 0)
			continue
		}

		rest := slices.DeleteFunc(changed.items, func(i resourceItem) bool { return i.document == nil })
		for _, i := range rest {
			if err := a.printWatchedItem(o, l.kind, i); err != nil {
				return err
			}
		}
	}

	return nil
}

func (a lister) printWatchedItem(o getOptions, kind string, i resourceItem) error {
	if o.format == formatName {
		fmt.Fprintln(a.Stdout, kind+"/"+i.name)
		return nil
	}

	if o.format == formatYAML {
		fmt.Fprintln(a.Stdout, "---")
	}

	return a.printValue(o.format, i.document)
}

// changedItems returns the items that are new or differ from those before, then those that have disappeared,
// which are marked in their last cell and have no document.
func changedItems(before, now []resourceItem) []resourceItem {
	old := map[string]string{}
	for _, i := range before {
		old[i.name] = i.fingerprint()
	}

	var out []resourceItem

	for _, i := range now {
		if was, ok := old[i.name]; !ok || was != i.fingerprint() {
			out = append(out, i)
		}

		delete(old, i.name)
	}

	for _, i := range before {
		if _, gone := old[i.name]; gone {
			out = append(out, resourceItem{name: i.name, cells: append(slices.Clone(i.cells), "(deleted)")})
		}
	}

	return out
}

// fingerprint returns the item's signature.
func (i resourceItem) fingerprint() string {
	if i.signature != "" {
		return i.signature
	}

	text, err := json.Marshal(i.document)
	if err != nil {
		return fmt.Sprint(i.cells, i.wide) // documents are plain data, so this does not happen
	}

	return string(text)
}
