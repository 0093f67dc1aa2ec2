// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/record"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// nobody is the region itself: nothing is denied to it.
func nobody() wire.Caller { return wire.Caller{} }

// handlerMessage is a failure in CloudFormation's words.
func handlerMessage(err error, token string) string {
	if e, ok := errors.AsType[*callError](err); ok {
		return fmt.Sprintf("Resource handler returned message: %q (RequestToken: %s, HandlerErrorCode: %s)", e.Error(), token, handlerCode(e.err.Code))
	}
	if w, ok := errors.AsType[*wire.Error](err); ok {
		return w.Message
	}
	return err.Error()
}

// handlerCode is the class that CloudFormation gives to a service's error code.
func handlerCode(service string) string {
	for _, c := range []struct{ part, class string }{
		{"NotFound", "NotFound"},
		{"NoSuch", "NotFound"},
		{"AlreadyExists", "AlreadyExists"},
		{"Duplicate", "AlreadyExists"},
		{"Limit", "ServiceLimitExceeded"},
		{"Unauthorized", "AccessDenied"},
		{"AccessDenied", "AccessDenied"},
		{"DependencyViolation", "ResourceConflict"},
	} {
		if strings.Contains(service, c.part) {
			return c.class
		}
	}
	return "InvalidRequest"
}

// shown is properties as events show them.
func shown(props tree) string {
	if props == nil {
		return ""
	}
	b, err := json.Marshal(props)
	if err != nil {
		return ""
	}
	return string(b)
}

// scopeOf is what a stack's template is evaluated with. The caller is inside the book while it is used.
func (s *Service) scopeOf(st *stack, c content, t *Template) scope {
	return scope{
		t: t, params: c.Params, zones: s.cfg.Zones, pseudo: s.pseudo(st), conditions: map[string]bool{},
		ref: func(logical string) (any, error) {
			r := st.Resources[logical]
			if r == nil || r.Physical == "" {
				return nil, malformed("Unresolved resource dependencies [%s] in the Resources block of the template", logical)
			}
			return r.Physical, nil
		},
		attribute: func(logical, name string) (any, error) {
			r := st.Resources[logical]
			if r == nil || r.Physical == "" {
				return nil, malformed("Unresolved resource dependencies [%s] in the Resources block of the template", logical)
			}
			if v, ok := r.Attributes[name]; ok {
				return v, nil
			}
			return nil, templateError("resource %s does not support attribute type %s in Fn::GetAtt", logical, name)
		},
		export: s.exported,
	}
}

func (s *Service) pseudo(st *stack) map[string]any {
	notify := []any{}
	for _, n := range st.Notify {
		notify = append(notify, n)
	}
	return map[string]any{
		"AWS::AccountId": s.cfg.Account, "AWS::Region": s.cfg.Region, "AWS::Partition": "aws", "AWS::URLSuffix": "amazonaws.com",
		"AWS::StackId": st.ID, "AWS::StackName": st.Name, "AWS::NoValue": noValue{}, "AWS::NotificationARNs": notify,
	}
}

// evaluate gives a resource's properties and policies as values.
func (s *Service) evaluate(sd side, name string) (props tree, spec resourceSpec, err error) {
	spec = sd.t.Resources[name]
	sc := s.scopeOf(sd.st, sd.after, sd.t)
	v, err := sc.eval([]any{spec.Properties, orEmpty(spec.CreationPolicy), orEmpty(spec.UpdatePolicy)})
	if err != nil {
		return nil, spec, err
	}
	props, _ = at(v, 0).(tree)
	spec.CreationPolicy, _ = at(v, 1).(tree)
	spec.UpdatePolicy, _ = at(v, 2).(tree)
	props, problems := conform(spec.Type, props)
	if len(problems) > 0 {
		return nil, spec, fmt.Errorf("Properties validation failed for resource %s with message: [%s]", name, strings.Join(problems, ", ")) //nolint:staticcheck // CloudFormation's words
	}
	return props, spec, nil
}

func orEmpty(m tree) tree {
	if m == nil {
		return tree{}
	}
	return m
}

// step brings one resource to what its side says: it is made, changed, replaced or left as it is.
func (s *Service) step(ctx context.Context, sd side, name string) error {
	var act func() error
	err := s.book.Do(func() error {
		r := sd.st.Resources[name]
		if sd.op.Done[name] {
			return nil
		}
		if sd.rollback && slices.Contains(sd.op.Skip, name) && r != nil {
			r.From, sd.op.Done[name] = nil, true
			s.setResource(sd.st, r, "UPDATE"+complete, "")
			return nil
		}
		props, spec, err := s.evaluate(sd, name)
		if r == nil || r.Physical == "" || r.Status == deleted || r.Status == "CREATE"+inProgress {
			act = func() error { return s.create(ctx, sd, name, made{props, spec, err, "CREATE"}) }
			return nil
		}
		act = s.difference(ctx, sd, r, made{props, spec, err, "UPDATE"})
		return nil
	})
	if err != nil || act == nil {
		return err
	}
	return act()
}

// made is what a resource is to be made of, or why that could not be evaluated, and what that is called.
type made struct {
	props tree
	spec  resourceSpec
	err   error
	verb  string
}

// difference decides what to do with a resource that is there; nil if nothing. The caller is inside the book.
func (s *Service) difference(ctx context.Context, sd side, r *resource, m made) func() error {
	refuse := func(why error) func() error {
		return func() error { return s.fail(ctx, sd, r.Logical, "UPDATE", why) }
	}
	switch {
	case m.err != nil:
		return refuse(m.err)
	case r.From != nil: // an earlier process was at it
		return func() error { return s.change(ctx, sd, r, m) }
	case r.Type != m.spec.Type:
		return refuse(fmt.Errorf("Update of resource type is not permitted. The new template modifies resource type of the following resources: [%s]", r.Logical)) //nolint:staticcheck // CloudFormation's words
	case sd.rollback && !sd.op.Touched[r.Logical]:
		return nil // what the update did not reach stays as it is
	}
	names := sd.asked(r.Logical, differing(r.Properties, m.props), func(other string) bool { return sd.op.Touched[other] })
	r.DeletionPolicy, r.UpdateReplacePolicy, r.After = m.spec.DeletionPolicy, m.spec.UpdateReplacePolicy, sd.t.after(r.Logical)
	s.book.Dirty()
	if len(names) == 0 && !retagged(sd, r) && !broken(sd, r) {
		return nil
	}
	replace := replaces(r, m, names)
	action := map[bool]string{true: "Update:Replace", false: "Update:Modify"}[replace]
	if why := s.policyDenies(sd, r, action); why != "" {
		return refuse(errors.New(why))
	}
	if replace {
		return func() error { return s.replace(ctx, sd, r, m) }
	}
	return func() error { return s.change(ctx, sd, r, m) }
}

// retagged tells whether the stack's tags change on a resource.
func retagged(sd side, r *resource) bool {
	return canonical(anyMap(sd.after.Tags)) != canonical(anyMap(sd.before.Tags)) && schemas()[r.Type].TagProperty != ""
}

// broken tells whether a resource may not be as its properties say.
func broken(sd side, r *resource) bool {
	return strings.HasSuffix(r.Status, failed) || sd.rollback && sd.op.Touched[r.Logical]
}

// replaces tells whether a change needs a new resource.
func replaces(r *resource, m made, names []string) bool {
	if slices.ContainsFunc(names, func(n string) bool { return recreation(r.Type, n) == "Always" }) {
		return true
	}
	will, _ := text(at(m.spec.UpdatePolicy, "AutoScalingReplacingUpdate", "WillReplace"))
	return will == "true" && slices.ContainsFunc(names, func(n string) bool { return slices.Contains(launching(), n) }) ||
		len(names) > 0 && types()[r.Type].change == nil
}

func anyMap(m map[string]string) tree {
	out := tree{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

// create makes a resource that is not there.
func (s *Service) create(ctx context.Context, sd side, name string, m made) error {
	var r *resource
	var again bool
	err := s.book.Do(func() error {
		if r = sd.st.Resources[name]; r == nil {
			r = &resource{Logical: name}
			sd.st.Resources[name] = r
		}
		again = r.Begun && strings.HasSuffix(r.Status, inProgress)
		r.Type, r.After, r.DeletionPolicy, r.UpdateReplacePolicy = m.spec.Type, sd.t.after(name), m.spec.DeletionPolicy, m.spec.UpdateReplacePolicy
		if !again {
			r.Properties, r.Signals, r.Attributes, r.Begun, r.Physical = m.props, nil, nil, true, ""
			if r.Status != "UPDATE"+inProgress || m.verb != "UPDATE" { // a replacement has said so already
				s.setResource(sd.st, r, m.verb+inProgress, "")
			}
		}
		s.book.Dirty()
		return nil
	})
	if err != nil {
		return err
	}
	if m.err != nil {
		return s.fail(ctx, sd, name, m.verb, m.err)
	}
	j := s.jobOf(ctx, sd.st, r)
	j.tags, j.again, j.policy, j.rollback = sd.after.Tags, again, m.spec.CreationPolicy, sd.rollback
	if err := s.build(ctx, j, m, place{sd.st, r}); err != nil {
		return s.fail(ctx, sd, name, m.verb, err)
	}
	return s.finish(sd, r, j, m.verb)
}

// place is a resource in its stack.
type place struct {
	st *stack
	r  *resource
}

// build makes the thing, waits until it is ready and, where asked, until it says so.
func (s *Service) build(ctx context.Context, j *job, m made, at place) error {
	t := types()[j.kind]
	if err := s.obtain(ctx, j, m, at); err != nil {
		return err
	}
	if j.attributes == nil {
		j.attributes = tree{}
	}
	if t.settle != nil {
		if err := t.settle(j); err != nil {
			return err
		}
	}
	if t.signals {
		return nil
	}
	return s.awaitCreation(j, at.r)
}

// obtain makes the thing, or finds what an earlier process has made.
func (s *Service) obtain(ctx context.Context, j *job, m made, at place) error {
	if j.id == "" && j.again {
		found, err := s.adopt(ctx, j)
		if err == nil && found {
			err = j.made(j.id)
		}
		if err != nil {
			return err
		}
	}
	if j.id != "" {
		return nil
	}
	if err := types()[j.kind].make(j); err != nil {
		return err
	}
	return s.book.Do(func() error {
		s.setResource(at.st, at.r, m.verb+inProgress, "Resource creation Initiated")
		return nil
	})
}

// finish notes that a resource is as it should be.
func (s *Service) finish(sd side, r *resource, j *job, verb string) error {
	return s.book.Do(func() error {
		r.Attributes, r.Begun, r.Waiting, r.Roll, r.From = j.attributes, false, false, nil, nil
		r.Physical = cmp.Or(j.id, r.Physical)
		sd.op.Done[r.Logical] = true
		s.setResource(sd.st, r, verb+complete, "")
		return nil
	})
}

// fail notes a failure. Work that ends with the region's process leaves everything as it is.
func (s *Service) fail(ctx context.Context, sd side, name, verb string, cause error) error {
	if why := context.Cause(ctx); why != nil && !errors.Is(why, errCancelled) && errors.Is(why, context.Canceled) {
		return errStopping
	}
	message := handlerMessage(cause, s.uuid())
	if errors.Is(context.Cause(ctx), errCancelled) {
		cause = errCancelled
		message = map[string]string{"CREATE": "Resource creation cancelled", "UPDATE": "Resource update cancelled"}[verb]
	}
	err := s.book.Do(func() error {
		r := sd.st.Resources[name]
		r.Waiting = false
		s.setResource(sd.st, r, verb+failed, message)
		return nil
	})
	return errors.Join(cause, err)
}

// outputsOf evaluates a side's outputs, and lists what it imports. The caller is inside the book.
func (s *Service) outputsOf(sd side) ([]output, []string, error) {
	sc := s.scopeOf(sd.st, sd.after, sd.t)
	imports := map[string]bool{}
	sc.export = func(name string) (any, error) {
		imports[name] = true
		return s.exported(name)
	}
	var out []output
	for _, key := range record.Keys(sd.t.Outputs) {
		spec := sd.t.Outputs[key]
		if spec.Condition != "" {
			if yes, err := sc.condition(spec.Condition); err != nil || !yes {
				if err != nil {
					return nil, nil, err
				}
				continue
			}
		}
		o, err := s.outputOf(sc, sd.st, key, spec)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, o)
	}
	for _, name := range record.Keys(sd.t.Resources) {
		if r := sd.st.Resources[name]; r == nil || r.Status == deleted {
			continue // its condition is false
		}
		if _, err := sc.eval(sd.t.Resources[name].Properties); err != nil { // finds the imports
			return nil, nil, err
		}
	}
	return out, record.Keys(imports), nil
}

func (s *Service) outputOf(sc scope, st *stack, key string, spec outputSpec) (output, error) {
	v, err := sc.eval([]any{spec.Value, spec.Export})
	if err != nil {
		return output{}, err
	}
	t, ok := text(at(v, 0))
	if !ok {
		return output{}, malformed("Output %s is malformed: its value is no string", key)
	}
	o := output{Key: key, Value: t, Description: spec.Description, Export: textOf(v, 1)}
	if owner := s.exporter(o.Export); o.Export != "" && owner != nil && owner != st {
		return output{}, invalid("Export with name %s is already exported by stack %s. Rollback requested by user.", o.Export, owner.Name)
	}
	return o, nil
}
