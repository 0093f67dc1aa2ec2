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

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/resourcetype"
	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// handlerMessage returns the message of a failure as CloudFormation words it.
func handlerMessage(err error, token string) string {
	if e, ok := errors.AsType[*resourcetype.CallError](err); ok {
		return fmt.Sprintf(
			"Resource handler returned message: %q (RequestToken: %s, HandlerErrorCode: %s)",
			e.Error(),
			token,
			handlerCode(e.Refusal.Code),
		)
	}

	if w, ok := errors.AsType[*wire.Error](err); ok {
		return w.Message
	}

	return err.Error()
}

// handlerCode returns the class that CloudFormation gives to an error code of a service.
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

	return string(codeInvalidRequest)
}

// propertiesJSON returns properties as JSON text, as events show them.
func propertiesJSON(props template.Object) string {
	if props == nil {
		return ""
	}

	b, err := json.Marshal(props)
	if err != nil {
		return ""
	}

	return string(b)
}

// applyResource makes one resource match the new template: it creates, updates, replaces or keeps it.
func (s *Service) applyResource(ctx context.Context, sd stackTransition, name string) error {
	var act func() error
	err := s.store.WithLock(func() error {
		r := sd.stack.Resources[name]
		if sd.operation.Done[name] {
			return nil
		}

		if sd.rollback && slices.Contains(sd.operation.Skip, name) && r != nil {
			r.PreviousProperties = nil
			sd.operation.Done[name] = true
			s.setResourceStatus(sd.stack, r, "UPDATE"+suffixComplete, "")

			return nil
		}

		m := s.evaluateResource(sd, name)
		if r == nil || r.Physical == "" || r.Status == statusDeleted ||
			r.Status == "CREATE"+suffixInProgress {
			m.action = "CREATE"
			act = func() error { return s.createResource(ctx, sd, name, m) }

			return nil
		}

		m.action = "UPDATE"
		act = s.planResourceUpdate(ctx, sd, r, m)

		return nil
	})
	if err != nil || act == nil {
		return err
	}

	return act()
}

// evaluatedResource is what the template says about a resource, evaluated.
type evaluatedResource struct {
	props    template.Object
	policies template.Policies
	spec     template.ResourceSpec // its CreationPolicy and UpdatePolicy are evaluated
	err      error
	action   string // CREATE or UPDATE
}

// planResourceUpdate returns the function that updates an existing resource; nil if there is nothing to do.
// The caller holds the store's lock.
func (s *Service) planResourceUpdate(
	ctx context.Context,
	sd stackTransition,
	r *resource,
	m evaluatedResource,
) func() error {
	refuse := func(why error) func() error {
		return func() error { return s.failResource(ctx, sd, r.Logical, "UPDATE", why) }
	}
	switch {
	case m.err != nil:
		return refuse(m.err)
	case r.PreviousProperties != nil: // an earlier process began the update
		return func() error { return s.updateResource(ctx, sd, r, m) }
	case r.Type != m.spec.Type:
		return refuse(
			fmt.Errorf(
				"Update of resource type is not permitted. The new template modifies resource type of the following resources: [%s]",
				r.Logical,
			),
		)
	}

	r.DeletionPolicy = m.policies.Deletion
	r.UpdateReplacePolicy = m.policies.UpdateReplace
	r.After = sd.newTemplate.DependenciesOf(r.Logical)
	s.store.MarkChanged()
	if sd.rollback && !sd.operation.Touched[r.Logical] {
		return nil // the update did not change its properties, so they need no rollback
	}

	names := sd.requestedChanges(
		r.Logical,
		resourcetype.ChangedProperties(r.Properties, m.props),
		func(other string) bool { return sd.operation.Touched[other] },
	)

	if len(names) == 0 && !stackTagsChange(sd, r) && !needsRepair(sd, r) {
		return nil
	}

	replace := needsReplacement(r, m, names)
	action := map[bool]string{true: "Update:Replace", false: "Update:Modify"}[replace]
	if why := deniedByPolicy(sd, r, action); why != "" {
		return refuse(errors.New(why))
	}

	if replace {
		return func() error { return s.replaceResource(ctx, sd, r, m) }
	}

	return func() error { return s.updateResource(ctx, sd, r, m) }
}

// stackTagsChange reports whether an update changes the stack's tags on a resource.
func stackTagsChange(sd stackTransition, r *resource) bool {
	return template.CanonicalText(toObject(sd.after.Tags)) != template.CanonicalText(toObject(sd.before.Tags)) &&
		resourcetype.HasStackTags(r.Type)
}

// needsRepair reports whether a resource may differ from its recorded properties.
func needsRepair(sd stackTransition, r *resource) bool {
	return strings.HasSuffix(r.Status, suffixFailed) || sd.rollback && sd.operation.Touched[r.Logical]
}

// needsReplacement reports whether a change of properties replaces the resource.
func needsReplacement(r *resource, m evaluatedResource, names []string) bool {
	if slices.ContainsFunc(
		names,
		func(n string) bool { return resourcetype.RequiresRecreation(r.Type, n) == "Always" },
	) {
		return true
	}

	will, _ := template.ScalarText(
		template.ValueAt(m.spec.UpdatePolicy, "AutoScalingReplacingUpdate", "WillReplace"),
	)
	return will == "true" &&
		slices.ContainsFunc(
			names,
			func(n string) bool { return slices.Contains(resourcetype.LaunchProperties(), n) },
		) ||
		len(names) > 0 && lookupType(r.Type).Update == nil
}

func toObject(m map[string]string) template.Object {
	out := template.Object{}
	for k, v := range m {
		out[k] = v
	}

	return out
}

// createResource creates a resource that does not exist yet, or resumes its creation.
func (s *Service) createResource(
	ctx context.Context,
	sd stackTransition,
	name string,
	m evaluatedResource,
) error {
	var r *resource
	var again bool
	err := s.store.WithLock(func() error {
		if r = sd.stack.Resources[name]; r == nil {
			r = &resource{Logical: name}
			sd.stack.Resources[name] = r
		}

		again = r.CreationStarted && strings.HasSuffix(r.Status, suffixInProgress)
		r.Type = m.spec.Type
		r.After = sd.newTemplate.DependenciesOf(name)
		r.DeletionPolicy = m.policies.Deletion
		r.UpdateReplacePolicy = m.policies.UpdateReplace
		if !again {
			r.Properties = m.props
			r.Signals = nil
			r.Attributes = nil
			r.CreationStarted = true
			r.Physical = ""
			if r.Status != "UPDATE"+suffixInProgress ||
				m.action != "UPDATE" { // replaceResource has set the status
				s.setResourceStatus(sd.stack, r, m.action+suffixInProgress, "")
			}
		}

		s.store.MarkChanged()

		return nil
	})
	if err != nil {
		return err
	}

	if m.err != nil {
		return s.failResource(ctx, sd, name, m.action, m.err)
	}

	reqCtx, req := s.newRequest(ctx, sd.stack, r)
	req.StackTags = sd.after.Tags
	req.Resumed = again
	req.Policy = m.spec.CreationPolicy
	req.Rollback = sd.rollback
	if err := s.provisionResource(reqCtx, req, m, resourceRef{sd.stack, r}); err != nil {
		return s.failResource(ctx, sd, name, m.action, err)
	}

	return s.completeResource(sd, r, req, m.action)
}

// resourceRef is a resource and its stack.
type resourceRef struct {
	stack    *stack
	resource *resource
}

// provisionResource creates a resource, waits until it is ready and, if its CreationPolicy requires that, for
// its signals.
func (s *Service) provisionResource(
	ctx context.Context,
	req *resourcetype.Request,
	m evaluatedResource,
	at resourceRef,
) error {
	t := req.Type
	if err := s.createOrFind(ctx, req, m, at); err != nil {
		return err
	}

	if req.Attributes == nil {
		req.Attributes = template.Object{}
	}

	if t.Stabilize != nil {
		if err := t.Stabilize(expectUnseen(ctx), req); err != nil {
			return err
		}
	}

	if t.CountsOwnSignals {
		return nil
	}

	wait, ok, err := resourcetype.ParseCreationPolicy(req.Policy)
	if err != nil || !ok {
		return err
	}

	return signalHandlers{s}.waitForSignals(ctx, req, wait)
}

// createOrFind creates a resource, or finds the one that an earlier process created.
func (s *Service) createOrFind(
	ctx context.Context,
	req *resourcetype.Request,
	m evaluatedResource,
	at resourceRef,
) error {
	if req.PhysicalID == "" && req.Resumed {
		found, err := s.findCreatedResource(ctx, req)
		if err == nil && found {
			err = req.Engine.SavePhysicalID(ctx, req)
		}

		if err != nil {
			return err
		}
	}

	if req.PhysicalID != "" {
		return nil
	}

	if err := req.Type.Create(expectUnseen(ctx), req); err != nil {
		return err
	}

	return s.store.WithLock(func() error {
		s.setResourceStatus(at.stack, at.resource, m.action+suffixInProgress, "Resource creation Initiated")
		return nil
	})
}

// completeResource records the success of an operation on a resource.
func (s *Service) completeResource(
	sd stackTransition,
	r *resource,
	req *resourcetype.Request,
	verb string,
) error {
	return s.store.WithLock(func() error {
		r.Attributes = req.Attributes
		r.CreationStarted = false
		r.WaitingForSignals = false
		r.RollingUpdate = nil
		r.PreviousProperties = nil
		r.Physical = cmp.Or(req.PhysicalID, r.Physical)
		sd.operation.Done[r.Logical] = true
		s.setResourceStatus(sd.stack, r, verb+suffixComplete, "")

		return nil
	})
}

// failResource records the failure of an operation on a resource. If the region's process is ending, it
// records nothing: the next process resumes the operation.
func (s *Service) failResource(
	ctx context.Context,
	sd stackTransition,
	name, verb string,
	cause error,
) error {
	if why := context.Cause(ctx); why != nil && !errors.Is(why, errCancelled) &&
		errors.Is(why, context.Canceled) {
		return errStopping
	}

	message := handlerMessage(cause, sdkshape.RandomUUID(s.cfg.Rand))
	if errors.Is(context.Cause(ctx), errCancelled) {
		cause = errCancelled
		message = map[string]string{"CREATE": "Resource creation cancelled", "UPDATE": "Resource update cancelled"}[verb]
	}

	err := s.store.WithLock(func() error {
		r := sd.stack.Resources[name]
		r.WaitingForSignals = false
		s.setResourceStatus(sd.stack, r, verb+suffixFailed, message)

		return nil
	})

	return errors.Join(cause, err)
}
