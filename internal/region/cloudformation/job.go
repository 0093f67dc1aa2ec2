// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/record"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// resourceType is what the engine needs to know of a type. To add one is to add one entry to the table of its service.
type resourceType struct {
	// make makes the thing and sets the job's id. It is short: what takes long belongs into settle.
	make func(j *job) error
	// settle, where set, waits until it is ready, does what is left and sets attributes. It may run twice.
	settle func(j *job) error
	// change makes it as j.props says, from j.old. Without it only a replacement can.
	change func(j *job) error
	// remove takes it away; what is not there is well.
	remove func(j *job) error
	// gone, where set, tells whether it has ended, since remove only began that.
	gone func(j *job) (bool, error)
	// adopt, where set, finds what an interrupted make has made and sets the job's id.
	adopt func(j *job) (bool, error)
	// name is the property that names it; a generated name is at most max long.
	name string
	max  int
	// attributes are those that Fn::GetAtt knows beyond the schema's read-only properties.
	attributes []string
	// replaced are properties whose change replaces it though the schema does not say so.
	replaced []string
	// iam says that a template with it needs a capability.
	iam bool
	// signals says that it waits by its properties rather than by a CreationPolicy.
	signals bool
}

// types is the table of all types that the region has.
func types() map[string]resourceType {
	out := map[string]resourceType{}
	for _, part := range []map[string]resourceType{
		networkTypes(), routeTypes(), securityTypes(), computeTypes(), scalingTypes(), balancerTypes(), iamTypes(), keyTypes(), otherTypes(),
	} {
		maps.Copy(out, part)
	}
	return out
}

// job is one thing to do to one resource.
type job struct {
	ctx        context.Context //nolint:containedctx // a job is one call, cut into pieces
	s          *Service
	stack      string // id
	stackName  string
	logical    string
	kind       string
	props, old tree // evaluated properties: those to have, and those that it has
	id         string
	attributes tree
	tags       map[string]string // of the stack
	oldTags    map[string]string
	again      bool // an earlier process may have begun this
	policy     tree // UpdatePolicy or CreationPolicy
	rollback   bool
}

// call carries out an operation as the stack's caller.
func (j *job) call(service, op string, in tree) (tree, error) {
	return j.s.call(j.ctx, service, op, in)
}

// do is call for those who need no answer.
func (j *job) do(service, op string, in tree) error {
	_, err := j.call(service, op, in)
	return err
}

// text is a property's text; empty where it is not set.
func (j *job) text(property string) string {
	t, _ := text(j.props[property])
	return t
}

// resource is what is remembered of the job's resource. Only the book may look into it.
func (j *job) resource() (r *resource) {
	_ = j.s.book.Do(func() error { // it only reads
		r = j.s.st.Stacks[j.stack].Resources[j.logical]
		return nil
	})
	return r
}

// has tells whether a property is set.
func (j *job) has(property string) bool { return j.props[property] != nil }

// take copies the named properties as they are.
func (j *job) take(names ...string) tree {
	out := tree{}
	for _, n := range names {
		if v, ok := j.props[n]; ok && v != nil {
			out[n] = v
		}
	}
	return out
}

// takeAll copies all properties but the named ones.
func (j *job) takeAll(but ...string) tree {
	out := tree{}
	for n, v := range j.props {
		if !slices.Contains(but, n) && v != nil {
			out[n] = v
		}
	}
	return out
}

// differs tells whether one of the properties is to change.
func (j *job) differs(names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return canonical(j.props[n]) != canonical(j.old[n]) })
}

// made sets the id, and remembers it before anything else happens.
func (j *job) made(id any) error {
	j.id, _ = text(id)
	if j.id == "" {
		return fmt.Errorf("make %s: the service named no id", j.logical)
	}
	j.s.mark(j)
	return j.s.book.Do(func() error {
		if st := j.s.st.Stacks[j.stack]; st != nil && st.Resources[j.logical] != nil {
			st.Resources[j.logical].Physical = j.id
			j.s.book.Dirty()
		}
		return nil
	})
}

// mark puts the stack's own tags on what was made.
func (s *Service) mark(j *job) {
	if m := s.cfg.Mark[serviceOf(j.kind)]; m != nil {
		m(j.id, wire.SystemTags(j.ctx))
	}
}

// serviceOf is the signing name of the service that a type belongs to.
func serviceOf(kind string) string {
	name := strings.ToLower(strings.Split(kind, "::")[1])
	if name == "elasticloadbalancingv2" {
		return "elasticloadbalancing"
	}
	return name
}

// systemTags are the tags that name the stack.
func systemTags(st *stack, r *resource) map[string]string {
	return map[string]string{
		"aws:cloudformation:stack-name": st.Name, "aws:cloudformation:stack-id": st.ID, "aws:cloudformation:logical-id": r.Logical,
	}
}

// ownTags are the tags that the resource should have: the stack's, and its own, which win.
func ownTags(stack map[string]string, property any) map[string]string {
	out := maps.Clone(stack)
	if out == nil {
		out = map[string]string{}
	}
	list, _ := property.([]any)
	for _, e := range list {
		m, _ := e.(tree)
		k, _ := text(m["Key"])
		v, _ := text(m["Value"])
		out[k] = v
	}
	if m, ok := property.(tree); ok {
		for k, e := range m {
			out[k], _ = text(e)
		}
	}
	return out
}

// tagList is the tags as most services take them.
func tagList(tags map[string]string) []any {
	out := []any{}
	for _, k := range record.Keys(tags) {
		out = append(out, tree{"Key": k, "Value": tags[k]})
	}
	return out
}

// tagsOf is the list of tags that the resource should have.
func (j *job) tagsOf() []any { return tagList(ownTags(j.tags, j.props["Tags"])) }

// retag calls set and drop with what must change of the tags in a property.
func (j *job) retag(property string, set func([]any) error, drop func(keys []any) error) error {
	want, have := ownTags(j.tags, j.props[property]), ownTags(j.oldTags, j.old[property])
	changed, gone := map[string]string{}, []any{}
	for k, v := range want {
		if old, ok := have[k]; !ok || old != v {
			changed[k] = v
		}
	}
	for _, k := range record.Keys(have) {
		if _, ok := want[k]; !ok {
			gone = append(gone, k)
		}
	}
	if len(gone) > 0 {
		if err := drop(gone); err != nil {
			return err
		}
	}
	if len(changed) > 0 {
		return set(tagList(changed))
	}
	return nil
}

// named is the physical name: the property's, or one made of stack and resource.
func (j *job) named() string {
	t := types()[j.kind]
	if n := j.text(t.name); n != "" {
		return n
	}
	suffix := "-" + strings.ToUpper(record.Hex(j.s.cfg.Rand, 12))
	base := j.stackName + "-" + j.logical
	if t.max > 0 && len(base)+len(suffix) > t.max {
		base = base[:t.max-len(suffix)]
	}
	return base + suffix
}

// wait looks until ready says yes.
func (j *job) wait(ready func() (bool, error)) error {
	return j.s.poll(j.ctx, j.s.cfg.Settle, ready)
}

var errTooLong = errors.New("Exceeded attempts to wait") //nolint:staticcheck // CloudFormation's words

// poll calls ready again and again until it says yes or an error, or limit has passed.
func (s *Service) poll(ctx context.Context, limit time.Duration, ready func() (bool, error)) error {
	t := time.NewTicker(s.cfg.Poll)
	defer t.Stop()
	end := time.NewTimer(limit)
	defer end.Stop()
	for {
		if ok, err := ready(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-end.C:
			return errTooLong
		case <-t.C:
		}
	}
}

// code is the code of a service's refusal; empty for other errors.
func code(err error) string {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e.Code
	}
	return ""
}

// denied tells whether IAM refused.
func denied(err error) bool {
	return slices.Contains([]string{"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"}, code(err))
}

// absent tells whether a service says that something is not there.
func absent(err error) bool {
	c := code(err)
	var e *callError
	if errors.As(err, &e) && c == "ValidationError" && strings.Contains(e.err.Message, "not found") {
		return true // Auto Scaling says it in its message only
	}
	return strings.HasSuffix(c, "NotFound") || strings.HasSuffix(c, "NotFoundException") || strings.HasPrefix(c, "NoSuch") ||
		strings.HasSuffix(c, ".Malformed") || c == "Gateway.NotAttached"
}

// unlessAbsent is err, but nil where it says that there is nothing.
func unlessAbsent(err error) error {
	if absent(err) {
		return nil
	}
	return err
}

// at follows a path of members, and of numbers of list items, into an answer.
func at(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := v.(tree)
			v = m[step]
		case int:
			list, _ := v.([]any)
			if step >= len(list) {
				return nil
			}
			v = list[step]
		}
	}
	return v
}

// list0 is the list at a path; nil if there is none.
func list0(v any, path ...any) []any {
	list, _ := at(v, path...).([]any)
	return list
}

// textOf is the text at a path; empty if there is none.
func textOf(v any, path ...any) string {
	t, _ := text(at(v, path...))
	return t
}
