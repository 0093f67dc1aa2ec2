// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// exportHandlers serves the exports of stacks.
type exportHandlers struct{ *Service }

func (s exportHandlers) ops() []wire.Operation {
	return []wire.Operation{
		state.ReadOperation(s.store, "ListExports", s.listExports),
		state.ReadOperation(s.store, "ListImports", s.listImports),
	}
}

// exportingStack returns the stack that exports a name; nil if there is none. The caller holds the store's
// lock.
func (s *serviceState) exportingStack(name string) *stack {
	for _, id := range sdkshape.SortedKeys(s.Stacks) {
		st := s.Stacks[id]
		if st.Status != statusDeleted &&
			slices.ContainsFunc(st.Outputs, func(o stackOutput) bool { return o.Export == name }) {
			return st
		}
	}

	return nil
}

// exportValue returns the value of an export. The caller holds the store's lock.
func (s *serviceState) exportValue(name string) (any, error) {
	st := s.exportingStack(name)
	if st == nil {
		return nil, template.ValidationError("No export named %s found.", name)
	}

	for _, o := range st.Outputs {
		if o.Export == name {
			return o.Value, nil
		}
	}

	return nil, template.ValidationError("No export named %s found.", name)
}

// missingImports returns the warning of a change set about the first resource that imports what no stack exports yet; empty
// if there is none. The caller holds the store's lock.
func (s *Service) missingImports(c stackContent) string {
	t, err := parseTemplate(c.Body)
	if err != nil {
		return ""
	}

	for _, name := range sdkshape.SortedKeys(t.Resources) {
		sc := s.newScope(&stack{}, c, t)
		sc.ResolveResource = func(string) (any, error) { return template.UnknownValue{}, nil }
		sc.ResolveAttribute = func(string, string) (any, error) { return template.UnknownValue{}, nil }
		missing := ""
		sc.ResolveExport = func(export string) (any, error) {
			if s.state.exportingStack(export) == nil {
				missing = export
			}

			return template.UnknownValue{}, nil
		}

		if _, err := sc.Eval(t.Resources[name].Properties); err == nil && missing != "" {
			return "[WARN] --include-property-values option can return incomplete ChangeSet data because: " +
				"ChangeSet creation failed for resource [" + name + "] because: No export named " + missing
		}
	}

	return ""
}

// importingStacks returns the names of the stacks that import an export. The caller holds the store's lock.
func (s *serviceState) importingStacks(name string) []string {
	var out []string
	for _, id := range sdkshape.SortedKeys(s.Stacks) {
		if st := s.Stacks[id]; st.Status != statusDeleted && slices.Contains(st.Imports, name) {
			out = append(out, st.Name)
		}
	}

	slices.Sort(out)

	return out
}

// exportInUse returns the first of a stack's exports that other stacks import, and the names of those stacks;
// empty for none. The caller holds the store's lock.
func (s *serviceState) exportInUse(outputs []stackOutput) (export string, by []string) {
	for _, o := range outputs {
		if o.Export == "" {
			continue
		}

		if by = s.importingStacks(o.Export); len(by) > 0 {
			return o.Export, by
		}
	}

	return "", nil
}

func (s exportHandlers) listExports(in *sdk.ListExportsInput) (*sdk.ListExportsOutput, error) {
	all := map[string]*sdk.Export{}
	for _, st := range s.state.Stacks {
		if st.Status == statusDeleted {
			continue
		}

		for _, o := range st.Outputs {
			if o.Export != "" {
				all[o.Export] = &sdk.Export{
					ExportingStackId: new(st.ID),
					Name:             new(o.Export),
					Value:            new(o.Value),
				}
			}
		}
	}

	keys, next, err := sdkshape.Paginate(
		sdkshape.SortedKeys(all),
		pageSize,
		in.NextToken,
		invalidTokenError(),
	)
	out := &sdk.ListExportsOutput{NextToken: next, Exports: []*sdk.Export{}}
	for _, k := range keys {
		out.Exports = append(out.Exports, all[k])
	}

	return out, err
}

func (s exportHandlers) listImports(in *sdk.ListImportsInput) (*sdk.ListImportsOutput, error) {
	name := sdkshape.String(in.ExportName)
	by := s.state.importingStacks(name)
	if len(by) == 0 {
		return nil, template.ValidationError("Export '%s' is not imported by any stack.", name)
	}

	keys, next, err := sdkshape.Paginate(by, pageSize, in.NextToken, invalidTokenError())

	return &sdk.ListImportsOutput{NextToken: next, Imports: sdkshape.StringPointers(keys)}, err
}
