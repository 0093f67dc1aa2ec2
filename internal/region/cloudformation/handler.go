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

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// resourceType is what the engine needs to know of a type. To add one is to add one entry to the table of its service.
type resourceType struct {
	// create makes the thing and sets the job's id. It is short: what takes long belongs into settle.
	create func(j *handlerRequest) error
	// stabilize, where set, waits until it is ready, does what is left and sets attributes. It may run twice.
	stabilize func(j *handlerRequest) error
	// update makes it as j.props says, from j.old. Without it only a replacement can.
	update func(j *handlerRequest) error
	// delete takes it away; what is not there is well.
	delete func(j *handlerRequest) error
	// isDeleted, where set, tells whether it has ended, since remove only began that.
	isDeleted func(j *handlerRequest) (bool, error)
	// findCreated, where set, finds what an interrupted make has made and sets the job's id.
	findCreated func(j *handlerRequest) (bool, error)
	// nameProperty is the property that names it; a generated name is at most max long.
	nameProperty  string
	maxNameLength int
	// extraAttributes are those that Fn::GetAtt knows beyond the schema's read-only properties.
	extraAttributes []string
	// replacementProperties are properties whose change replaces it though the schema does not say so.
	replacementProperties []string
	// needsCapability says that a template with it needs a capability.
	needsCapability bool
	// countsOwnSignals says that it waits by its properties rather than by a CreationPolicy.
	countsOwnSignals bool
}

// resourceTypes is the table of all types that the region has.
func resourceTypes() map[string]resourceType {
	out := map[string]resourceType{}
	for _, part := range []map[string]resourceType{
		networkTypes(), routeTypes(), securityTypes(), computeTypes(), scalingTypes(), balancerTypes(), iamTypes(), kmsTypes(), otherTypes(),
	} {
		maps.Copy(out, part)
	}

	return out
}

// handlerRequest is one thing to do to one resource.
type handlerRequest struct {
	ctx             context.Context //nolint:containedctx // a job is one call, cut into pieces
	engine          *Service
	stackID         string // id
	stackName       string
	logicalID       string
	typeName        string
	props, oldProps template.Object // evaluated properties: those to have, and those that it has
	physicalID      string
	attributes      template.Object
	stackTags       map[string]string // of the stack
	oldStackTags    map[string]string
	resumed         bool            // an earlier process may have begun this
	policy          template.Object // UpdatePolicy or CreationPolicy
	rollback        bool
}

// callOperation carries out an operation as the stack's caller.
func (j *handlerRequest) callOperation(service, op string, in template.Object) (template.Object, error) {
	return j.engine.callService(j.ctx, service, op, in)
}

// runOperation is call for those who need no answer.
func (j *handlerRequest) runOperation(service, op string, in template.Object) error {
	_, err := j.callOperation(service, op, in)
	return err
}

// stringProperty is a property's text; empty where it is not set.
func (j *handlerRequest) stringProperty(property string) string {
	t, _ := template.ScalarText(j.props[property])
	return t
}

// storedResource is what is remembered of the job's resource. Only the book may look into it.
func (j *handlerRequest) storedResource() (r *resource) {
	_ = j.engine.store.WithLock(func() error { // it only reads
		r = j.engine.state.Stacks[j.stackID].Resources[j.logicalID]
		return nil
	})

	return r
}

// hasProperty tells whether a property is set.
func (j *handlerRequest) hasProperty(property string) bool { return j.props[property] != nil }

// pickProperties copies the named properties as they are.
func (j *handlerRequest) pickProperties(names ...string) template.Object {
	out := template.Object{}
	for _, n := range names {
		if v, ok := j.props[n]; ok && v != nil {
			out[n] = v
		}
	}

	return out
}

// omitProperties copies all properties but the named ones.
func (j *handlerRequest) omitProperties(but ...string) template.Object {
	out := template.Object{}
	for n, v := range j.props {
		if !slices.Contains(but, n) && v != nil {
			out[n] = v
		}
	}

	return out
}

// propertyChanged tells whether one of the properties is to change.
func (j *handlerRequest) propertyChanged(names ...string) bool {
	return slices.ContainsFunc(
		names,
		func(n string) bool {
			return template.CanonicalText(j.props[n]) != template.CanonicalText(j.oldProps[n])
		},
	)
}

// setPhysicalID sets the id, and remembers it before anything else happens.
func (j *handlerRequest) setPhysicalID(id any) error {
	j.physicalID, _ = template.ScalarText(id)
	if j.physicalID == "" {
		return fmt.Errorf("make %s: the service named no id", j.logicalID)
	}

	j.engine.addSystemTags(j)

	return j.engine.store.WithLock(func() error {
		if st := j.engine.state.Stacks[j.stackID]; st != nil && st.Resources[j.logicalID] != nil {
			st.Resources[j.logicalID].Physical = j.physicalID
			j.engine.store.MarkChanged()
		}

		return nil
	})
}

// addSystemTags puts the stack's own tags on what was made.
func (s *Service) addSystemTags(j *handlerRequest) {
	if m := s.cfg.SystemTaggers[serviceName(j.typeName)]; m != nil {
		m(j.physicalID, wire.SystemTags(j.ctx))
	}
}

// serviceName is the signing name of the service that a type belongs to.
func serviceName(kind string) string {
	name := strings.ToLower(strings.Split(kind, "::")[1])
	if name == "elasticloadbalancingv2" {
		return "elasticloadbalancing"
	}

	return name
}

// stackSystemTags are the tags that name the stack.
func stackSystemTags(st *stack, r *resource) map[string]string {
	return map[string]string{
		"aws:cloudformation:stack-name": st.Name, "aws:cloudformation:stack-id": st.ID, "aws:cloudformation:logical-id": r.Logical,
	}
}

// mergeTags are the tags that the resource should have: the stack's, and its own, which win.
func mergeTags(stack map[string]string, property any) map[string]string {
	out := maps.Clone(stack)
	if out == nil {
		out = map[string]string{}
	}

	list, _ := property.([]any)

	for _, e := range list {
		m, _ := e.(template.Object)
		k, _ := template.ScalarText(m["Key"])
		v, _ := template.ScalarText(m["Value"])
		out[k] = v
	}

	if m, ok := property.(template.Object); ok {
		for k, e := range m {
			out[k], _ = template.ScalarText(e)
		}
	}

	return out
}

// tagObjects is the tags as most services take them.
func tagObjects(tags map[string]string) []any {
	out := []any{}
	for _, k := range sdkshape.SortedKeys(tags) {
		out = append(out, template.Object{"Key": k, "Value": tags[k]})
	}

	return out
}

// resourceTags is the list of tags that the resource should have.
func (j *handlerRequest) resourceTags() []any {
	return tagObjects(mergeTags(j.stackTags, j.props["Tags"]))
}

// updateTags calls set and drop with what must change of the tags in a property.
func (j *handlerRequest) updateTags(
	property string,
	set func([]any) error,
	drop func(keys []any) error,
) error {
	want := mergeTags(j.stackTags, j.props[property])
	have := mergeTags(j.oldStackTags, j.oldProps[property])
	changed := map[string]string{}
	gone := []any{}

	for k, v := range want {
		if old, ok := have[k]; !ok || old != v {
			changed[k] = v
		}
	}

	for _, k := range sdkshape.SortedKeys(have) {
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
		return set(tagObjects(changed))
	}

	return nil
}

// physicalName is the physical name: the property's, or one made of stack and resource.
func (j *handlerRequest) physicalName() string {
	t := resourceTypes()[j.typeName]
	if n := j.stringProperty(t.nameProperty); n != "" {
		return n
	}

	suffix := "-" + strings.ToUpper(sdkshape.RandomHex(j.engine.cfg.Rand, 12))
	base := j.stackName + "-" + j.logicalID
	if t.maxNameLength > 0 && len(base)+len(suffix) > t.maxNameLength {
		base = base[:t.maxNameLength-len(suffix)]
	}

	return base + suffix
}

// waitUntil looks until ready says yes.
func (j *handlerRequest) waitUntil(ready func() (bool, error)) error {
	return j.engine.pollUntil(j.ctx, j.engine.cfg.StabilizeTimeout, ready)
}

var errWaitTimeout = errors.New("Exceeded attempts to wait")

// pollUntil calls ready again and again until it says yes or an error, or limit has passed.
func (s *Service) pollUntil(ctx context.Context, limit time.Duration, ready func() (bool, error)) error {
	t := time.NewTicker(s.cfg.PollInterval)
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
			return errWaitTimeout
		case <-t.C:
		}
	}
}

// errorCode is the code of a service's refusal; empty for other errors.
func errorCode(err error) string {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e.Code
	}

	return ""
}

// isAccessDenied tells whether IAM refused.
func isAccessDenied(err error) bool {
	return slices.Contains(
		[]string{"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"},
		errorCode(err),
	)
}

// isNotFound tells whether a service says that something is not there.
func isNotFound(err error) bool {
	c := errorCode(err)
	var e *callError
	if errors.As(err, &e) && c == "ValidationError" && strings.Contains(e.err.Message, "not found") {
		return true // Auto Scaling says it in its message only
	}

	return strings.HasSuffix(c, "NotFound") || strings.HasSuffix(c, "NotFoundException") || strings.HasPrefix(c, "NoSuch") ||
		strings.HasSuffix(c, ".Malformed") ||
		c == "Gateway.NotAttached"
}

// ignoreNotFound is err, but nil where it says that there is nothing.
func ignoreNotFound(err error) error {
	if isNotFound(err) {
		return nil
	}

	return err
}
