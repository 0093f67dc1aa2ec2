// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"maps"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/resourcetype"
	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// parseTemplate parses a template with the region's resource types.
func parseTemplate(body string) (*template.Template, error) {
	return template.Parse(body, resourcetype.Catalog())
}

// lookupType returns a resource type of the region. Templates with other types are refused by parseTemplate.
func lookupType(name string) resourcetype.Type {
	t, _ := resourcetype.Lookup(name)
	return t
}

// newRequest returns a request for an operation on a resource as it is now, and the context to run it with: a
// service that creates a resource with it adds the stack's system tags.
func (s *Service) newRequest(
	ctx context.Context,
	st *stack,
	r *resource,
) (context.Context, *resourcetype.Request) {
	tags := map[string]string{
		"aws:cloudformation:stack-name": st.Name,
		"aws:cloudformation:stack-id":   st.ID,
		"aws:cloudformation:logical-id": r.Logical,
	}

	return wire.WithSystemTags(ctx, tags), &resourcetype.Request{
		Engine:        resourceEngine{s},
		StackID:       st.ID,
		StackName:     st.Name,
		LogicalID:     r.Logical,
		TypeName:      r.Type,
		Type:          lookupType(r.Type),
		Properties:    r.Properties,
		OldProperties: r.Properties,
		PhysicalID:    r.Physical,
		Attributes:    maps.Clone(r.Attributes),
		StackTags:     st.Tags,
		OldStackTags:  st.Tags,
	}
}

// resourceEngine is the service as resource types see it.
type resourceEngine struct{ service *Service }

// Account implements [resourcetype.Engine].
func (e resourceEngine) Account() string { return e.service.cfg.Account }

// RandomHex implements [resourcetype.Engine].
func (e resourceEngine) RandomHex(n int) string { return sdkshape.RandomHex(e.service.cfg.Rand, n) }

// Call implements [resourcetype.Services].
func (e resourceEngine) Call(
	ctx context.Context,
	service, op string,
	in template.Object,
) (template.Object, error) {
	out, err := e.service.callService(ctx, service, op, in)
	for range maxUnseenCalls {
		if ctx.Value(unseenKey{}) == nil || !resourcetype.IsNotSeen(err) || !e.service.pause(ctx) {
			break
		}

		out, err = e.service.callService(ctx, service, op, in)
	}

	return out, err
}

// maxUnseenCalls is how often a call is repeated, at the poll interval, if a service does not see a resource.
const maxUnseenCalls = 10

type unseenKey struct{}

// expectUnseen returns a context whose calls are repeated for a while if a service does not see a resource: the stack may have
// created it a moment ago.
func expectUnseen(ctx context.Context) context.Context {
	return context.WithValue(ctx, unseenKey{}, true)
}

// pause waits for a poll interval, and reports whether ctx has not ended meanwhile.
func (s *Service) pause(ctx context.Context) bool {
	t := time.NewTimer(s.cfg.PollInterval)
	defer t.Stop()

	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// CallAsSystem implements [resourcetype.Services].
func (e resourceEngine) CallAsSystem(
	ctx context.Context,
	service, op string,
	in template.Object,
) (template.Object, error) {
	return e.service.callService(e.service.withStackCaller(ctx, wire.SystemCaller()), service, op, in)
}

// Poll implements [resourcetype.Services].
func (e resourceEngine) Poll(ctx context.Context, limit time.Duration, ready func() (bool, error)) error {
	if limit == 0 {
		limit = e.service.cfg.StabilizeTimeout
	}

	return e.service.pollUntil(ctx, limit, ready)
}

// pollUntil calls ready at the poll interval until it returns true or an error, or limit has passed.
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
			return resourcetype.ErrWaitTimeout
		case <-t.C:
		}
	}
}

// findResource returns the stored resource of a request; nil if the stack has none of that name. The caller
// holds the store's lock.
func (s *serviceState) findResource(req *resourcetype.Request) *resource {
	if st := s.Stacks[req.StackID]; st != nil {
		return st.Resources[req.LogicalID]
	}

	return nil
}

// SavePhysicalID implements [resourcetype.Record].
func (e resourceEngine) SavePhysicalID(ctx context.Context, req *resourcetype.Request) error {
	if tag := e.service.cfg.SystemTaggers[resourcetype.ServiceName(req.TypeName)]; tag != nil {
		tag(req.PhysicalID, wire.SystemTags(ctx))
	}

	return e.service.store.Update(func() error {
		if r := e.service.state.findResource(req); r != nil {
			r.Physical = req.PhysicalID
		}

		return nil
	})
}

// AddProgressEvent implements [resourcetype.Record].
func (e resourceEngine) AddProgressEvent(req *resourcetype.Request, reason string) error {
	return e.service.store.Update(func() error {
		r := e.service.state.findResource(req)
		e.service.addEvent(e.service.state.Stacks[req.StackID], stackEvent{
			Logical:  r.Logical,
			Physical: r.Physical,
			Type:     r.Type,
			Status:   r.Status,
			Reason:   reason,
		})

		return nil
	})
}

// BeginRollingUpdate implements [resourcetype.Record].
func (e resourceEngine) BeginRollingUpdate(
	req *resourcetype.Request,
	first func() resourcetype.RollingUpdate,
) (out resourcetype.RollingUpdate, err error) {
	err = e.service.store.Update(func() error {
		r := e.service.state.findResource(req)
		if r.RollingUpdate == nil {
			r.RollingUpdate = new(first())
		}

		out = r.RollingUpdate.Clone()

		return nil
	})

	return out, err
}

// ChangeRollingUpdate implements [resourcetype.Record].
func (e resourceEngine) ChangeRollingUpdate(
	req *resourcetype.Request,
	change func(*resourcetype.RollingUpdate),
) (out resourcetype.RollingUpdate, err error) {
	err = e.service.store.Update(func() error {
		r := e.service.state.findResource(req)
		change(r.RollingUpdate)
		out = r.RollingUpdate.Clone()

		return nil
	})

	return out, err
}

// NewSignalURL implements [resourcetype.Record].
func (e resourceEngine) NewSignalURL(req *resourcetype.Request) string {
	return signalHandlers{e.service}.newSignalURL(req.StackID, req.LogicalID)
}

// WaitForSignals implements [resourcetype.Record].
func (e resourceEngine) WaitForSignals(
	ctx context.Context,
	req *resourcetype.Request,
	wait resourcetype.SignalWait,
) error {
	return signalHandlers{e.service}.waitForSignals(ctx, req, wait)
}

// ClearSignals implements [resourcetype.Record].
func (e resourceEngine) ClearSignals(req *resourcetype.Request) error {
	return e.service.store.Update(func() error {
		e.service.state.findResource(req).Signals = nil
		return nil
	})
}

// SignalData implements [resourcetype.Record].
func (e resourceEngine) SignalData(req *resourcetype.Request) map[string]string {
	data := map[string]string{}
	e.service.store.View(func() {
		for _, sig := range e.service.state.findResource(req).Signals {
			data[sig.ID] = sig.Data
		}
	})

	return data
}
