// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/region/record"
)

// exporter is the stack that exports a name; nil if none does. The caller is inside the book.
func (s *Service) exporter(name string) *stack {
	for _, id := range record.Keys(s.st.Stacks) {
		st := s.st.Stacks[id]
		if st.Status != deleted && slices.ContainsFunc(st.Outputs, func(o output) bool { return o.Export == name }) {
			return st
		}
	}
	return nil
}

// exported is the value of an export. The caller is inside the book.
func (s *Service) exported(name string) (any, error) {
	st := s.exporter(name)
	if st == nil {
		return nil, invalid("No export named %s found.", name)
	}
	for _, o := range st.Outputs {
		if o.Export == name {
			return o.Value, nil
		}
	}
	return nil, invalid("No export named %s found.", name)
}

// importers are the names of the stacks that use an export. The caller is inside the book.
func (s *Service) importers(name string) []string {
	var out []string
	for _, id := range record.Keys(s.st.Stacks) {
		if st := s.st.Stacks[id]; st.Status != deleted && slices.Contains(st.Imports, name) {
			out = append(out, st.Name)
		}
	}
	slices.Sort(out)
	return out
}

// needed says which of a stack's exports others use; empty if none.
func (s *Service) needed(outputs []output) (export string, by []string) {
	for _, o := range outputs {
		if o.Export == "" {
			continue
		}
		if by = s.importers(o.Export); len(by) > 0 {
			return o.Export, by
		}
	}
	return "", nil
}

func (s *Service) listExports(in *sdk.ListExportsInput) (*sdk.ListExportsOutput, error) {
	all := map[string]*sdk.Export{}
	for _, st := range s.st.Stacks {
		if st.Status == deleted {
			continue
		}
		for _, o := range st.Outputs {
			if o.Export != "" {
				all[o.Export] = &sdk.Export{ExportingStackId: new(st.ID), Name: new(o.Export), Value: new(o.Value)}
			}
		}
	}
	keys, next, err := record.Page(record.Keys(all), pageSize, in.NextToken, badToken())
	out := &sdk.ListExportsOutput{NextToken: next, Exports: []*sdk.Export{}}
	for _, k := range keys {
		out.Exports = append(out.Exports, all[k])
	}
	return out, err
}

func (s *Service) listImports(in *sdk.ListImportsInput) (*sdk.ListImportsOutput, error) {
	name := record.Str(in.ExportName)
	by := s.importers(name)
	if len(by) == 0 {
		return nil, invalid("Export '%s' is not imported by any stack.", name)
	}
	keys, next, err := record.Page(by, pageSize, in.NextToken, badToken())
	return &sdk.ListImportsOutput{NextToken: next, Imports: record.Refs(keys)}, err
}
