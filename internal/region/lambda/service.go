// SPDX-License-Identifier: Apache-2.0

// Package lambda is the region's Lambda: functions of the runtime provided.al2023 whose code is a zip file in S3. A
// function runs as a process of the region's computer that speaks the Lambda runtime API, with the credentials of its
// role. Events of other services wait in a queue that is saved, and are repeated if the function fails, as in Lambda.
package lambda

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/visibility"
	"github.com/slipway-k8s/slipway/internal/region/wakeup"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Credentials are temporary credentials of a role.
type Credentials struct {
	AccessKeyID     string
	SecretAccessKey string
	Token           string
}

// Roles is the part of IAM that Lambda uses.
type Roles interface {
	// RoleARN returns the ARN of a role by its name.
	RoleARN(name string) (string, bool)
	// TrustsService reports whether a role trusts a service, such as lambda.amazonaws.com.
	TrustsService(name, service string) bool
	// IssueRoleCredentials returns new credentials of a role.
	IssueRoleCredentials(role, session string) (Credentials, error)
	// MayDo reports whether the holder of credentials is allowed an action on a resource.
	MayDo(ctx context.Context, accessKeyID, action, resource string) bool
}

// Objects is the part of S3 that Lambda uses.
type Objects interface {
	// ReadObject returns an object with the rights of the caller in ctx. version is empty for the newest one.
	ReadObject(ctx context.Context, bucket, key, version string) ([]byte, error)
}

// Logs is the part of CloudWatch Logs that Lambda uses.
type Logs interface {
	// Append adds lines to a stream. It returns false if the group does not exist.
	Append(group, stream string, lines ...string) bool
}

// Config has the settings and dependencies of a [Service]. All fields but State and Log are required.
type Config struct {
	Region   string           // such as us-east-1
	Account  string           // 12 digits
	Now      func() time.Time // the region's clock
	Rand     io.Reader        // source of ids
	Delay    time.Duration    // how long a new or changed function takes to become ready
	State    state.Backend    // keeps the functions over a restart; nil keeps nothing
	Dir      string           // folder of the unpacked code
	Endpoint func() string    // URL of the region's API, as a process of this computer reaches it
	Roles    Roles            // identities of functions
	Objects  Objects          // code of functions
	Logs     Logs             // what functions write
	Log      *slog.Logger     // nil discards
}

// Service is Lambda of one region. Its methods may be called concurrently.
type Service struct {
	cfg    Config
	st     *serviceState // guarded by the store's lock
	store  *state.Store
	unseen visibility.Tracker
	pool   *environmentPool
	wake   wakeup.Signal // makes Run look at the queue
}

// serviceState is the saved state.
type serviceState struct {
	Functions map[string]*function // by name
	Queue     []queuedEvent        // of asynchronous invocations, oldest first
}

// function is a function without versions and aliases.
type function struct {
	Role        string
	Description string
	Handler     string
	Arch        string // x86_64 or arm64
	MemoryMB    int64
	TimeoutS    int64
	Environment map[string]string
	LogGroup    string // empty: /aws/lambda/NAME
	Tags        map[string]string
	Statements  []permission // of the function's policy, in the order of their creation

	CodeSHA256 string // of the zip file, in base64
	CodeSize   int64  // of the zip file, in bytes
	CodeDir    string // name of the folder of the unpacked code below Config.Dir

	Created  time.Time
	Modified time.Time
	Revision string
}

// New returns a service with its saved state. Call [Service.Run] to run queued events.
func New(cfg Config) (*Service, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}

	s := &Service{cfg: cfg, st: &serviceState{}, wake: wakeup.New()}
	s.pool = newEnvironmentPool(s)
	s.store = &state.Store{
		Name:     "lambda",
		State:    s.st,
		Backend:  cfg.State,
		OnChange: s.wake.Send,
	}
	if err := s.store.Load(); err != nil {
		return nil, err
	}

	if s.st.Functions == nil {
		s.st.Functions = map[string]*function{}
	}

	return s, nil
}

// SaveTo saves the service's state to another backend, for a snapshot.
func (s *Service) SaveTo(to state.Backend) error { return s.store.SaveTo(to) }

// Wire returns the service's operations for the wire layer.
func (s *Service) Wire() wire.Service {
	return wire.Service{
		Name:      "lambda",
		Protocol:  wire.RESTJSONProtocol,
		Version:   "2015-03-31",
		Route:     parseRoute,
		Authorize: s.authorizeRequest,
		Operations: s.unseen.Wrap(s.unseenRules(), []wire.Operation{
			wire.NewOperation("CreateFunction", s.createFunction),
			state.ReadOperation(s.store, "GetFunction", s.getFunction),
			state.ReadOperation(s.store, "GetFunctionConfiguration", s.getFunctionConfiguration),
			state.ReadOperation(s.store, "ListFunctions", s.listFunctions),
			wire.NewOperation("UpdateFunctionCode", s.updateFunctionCode),
			wire.NewOperation("UpdateFunctionConfiguration", s.updateFunctionConfiguration),
			state.WriteOperationContext(s.store, "DeleteFunction", s.deleteFunction),
			state.WriteOperationContext(s.store, "AddPermission", s.addPermission),
			state.WriteOperationContext(s.store, "RemovePermission", s.removePermission),
			state.ReadOperation(s.store, "GetPolicy", s.getPolicy),
			state.WriteOperationContext(s.store, "TagResource", s.tagResource),
			state.WriteOperationContext(s.store, "UntagResource", s.untagResource),
			state.ReadOperation(s.store, "ListTags", s.listTags),
			wire.NewOperation("Invoke", s.invoke),
		}),
	}
}

func (s *Service) functionARN(name string) string {
	return "arn:aws:lambda:" + s.cfg.Region + ":" + s.cfg.Account + ":function:" + name
}

// functionName returns the name of a function that a request names by its name or by its ARN.
func (s *Service) functionName(given *string) string {
	return strings.TrimPrefix(sdkshape.String(given), s.functionARN(""))
}

// findFunction returns the function of a name or an ARN.
func (s *Service) findFunction(given *string) (*function, error) {
	name := s.functionName(given)
	if f := s.st.Functions[name]; f != nil {
		return f, nil
	}

	return nil, s.newNotFoundError(name)
}

// newNotFoundError returns the error about a function that does not exist.
func (s *Service) newNotFoundError(name string) error {
	return newErrorf(codeResourceNotFound, "Function not found: %s", s.functionARN(name))
}

// invalidParameter returns Lambda's error for a value that is not valid.
func invalidParameter(format string, args ...any) error {
	return newErrorf(codeInvalidParameterValue, format, args...)
}

// authorizeRequest asks IAM about the function that a request names, and about the role that it passes.
func (s *Service) authorizeRequest(ctx context.Context, op string, in any) error {
	if wire.CallerFrom(ctx).IsUnrestricted() {
		return nil
	}

	action := "lambda:" + op
	if op == "Invoke" {
		action = "lambda:InvokeFunction"
	}

	c := wire.AccessCheck{Action: action, Resource: "*", Context: map[string][]string{}}
	name := wire.StringMember(in, "FunctionName")
	if arn := wire.StringMember(in, "Resource"); arn != "" {
		name = arn
	}

	name = s.functionName(&name)
	if name != "" {
		c.Resource = s.functionARN(name)
	}

	tree, err := sdkshape.ShapeToMap(in)
	if err != nil {
		return err
	}

	addConditions(c.Context, tree)
	s.store.View(func() {
		if f := s.st.Functions[name]; f != nil {
			sdkshape.AddResourceTags(c.Context, f.Tags)
		}
	})

	checks := []wire.AccessCheck{c}
	if role := wire.StringMember(in, "Role"); role != "" {
		checks = append(checks, wire.AccessCheck{
			Action:   "iam:PassRole",
			Resource: role,
			Context:  map[string][]string{"iam:PassedToService": {servicePrincipal}},
		})
	}

	return wire.Authorize(ctx, checks...)
}

// servicePrincipal is the principal that the roles of functions trust.
const servicePrincipal = "lambda.amazonaws.com"

// addConditions adds the condition keys of a request: its tags, and the principal of a permission.
func addConditions(into map[string][]string, tree map[string]any) {
	if tags, ok := tree["Tags"].(map[string]any); ok {
		for _, k := range sdkshape.SortedKeys(tags) {
			text, _ := tags[k].(string)
			into["aws:RequestTag/"+k] = []string{text}
			into["aws:TagKeys"] = append(into["aws:TagKeys"], k)
		}
	}

	if keys, ok := tree["TagKeys"].([]any); ok {
		for _, k := range keys {
			text, _ := k.(string)
			into["aws:TagKeys"] = append(into["aws:TagKeys"], text)
		}
	}

	if principal, ok := tree["Principal"].(string); ok {
		into["lambda:Principal"] = []string{principal}
	}
}

// SetSystemTags sets tags of a function whose keys begin with aws:, such as aws:cloudformation:stack-name. Requests
// cannot set them. SetSystemTags does nothing if the function does not exist.
func (s *Service) SetSystemTags(name string, tags map[string]string) {
	_ = s.store.WithLock(func() error { // if the save fails, the next change saves the tags
		if f := s.st.Functions[s.functionName(&name)]; f != nil {
			maps.Copy(f.Tags, tags)
			s.store.MarkChanged()
		}

		return nil
	})
}
