// SPDX-License-Identifier: Apache-2.0

package services

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// probe records what a service's handlers would get: requests are decoded and checked, but not executed.
type probe struct {
	endpoint *wire.Endpoint
	input    string // the decoded input of the last request as JSON; empty if no handler was reached
	refusal  string // code and message of the last refusal; empty if a handler was reached
}

// newProbe returns the probe of a service.
func newProbe(s wire.Service) *probe {
	p := &probe{}
	for i, op := range s.Operations {
		op.Handle = func(_ context.Context, in any) (any, error) {
			b, err := json.Marshal(in)
			p.input = string(b)

			return nil, errors.Join(err, wire.Errorf("Reached", "the handler was reached"))
		}
		s.Operations[i] = op
	}

	s.Authorize = wire.AuthorizedInHandlers
	p.endpoint = wire.NewEndpoint(s)

	return p
}

// Do implements the HTTP client of the SDK.
func (p *probe) Do(r *http.Request) (*http.Response, error) {
	p.input = ""
	p.refusal = ""
	if r.Body == nil {
		r.Body = http.NoBody
	}

	r.RequestURI = ""
	w := httptest.NewRecorder()
	result := p.endpoint.Serve(w, r, "id", nil)
	if p.input == "" && result.Err != nil {
		p.refusal = result.Err.Error()
	}

	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}

	res := w.Result()
	if p.input != "" { // headers are read by handlers from the request itself
		p.input += headerText(r.Header)
	}

	return res, nil
}

// headerText returns the headers of a request that are no part of the protocol.
func headerText(h http.Header) string {
	var lines []string
	for name, values := range h {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "if-") || slices.Contains([]string{"expires", "x-amz-mp-object-size", "x-amz-checksum-type"}, lower) ||
			strings.HasPrefix(lower, "x-amz-checksum-") || lower == "content-md5" || lower == "x-amz-sdk-checksum-algorithm" {
			lines = append(lines, lower+"="+strings.Join(values, ","))
		}
	}

	slices.Sort(lines)

	return strings.Join(lines, "\n")
}

// sdkClients returns a client of aws-sdk-go-v2 for each service, by the service's name.
func sdkClients(c aws.Config, byName func(string) *probe) map[string]any {
	with := func(name string) aws.Config {
		out := c.Copy()
		out.HTTPClient = byName(name)

		return out
	}

	return map[string]any{
		"autoscaling":          autoscaling.NewFromConfig(with("autoscaling")),
		"cloudformation":       cloudformation.NewFromConfig(with("cloudformation")),
		"ec2":                  ec2.NewFromConfig(with("ec2")),
		"ecr":                  ecr.NewFromConfig(with("ecr")),
		"elasticloadbalancing": elasticloadbalancingv2.NewFromConfig(with("elasticloadbalancing")),
		"events":               eventbridge.NewFromConfig(with("events")),
		"iam":                  iam.NewFromConfig(with("iam")),
		"kms":                  kms.NewFromConfig(with("kms")),
		"lambda":               lambda.NewFromConfig(with("lambda")),
		"logs":                 cloudwatchlogs.NewFromConfig(with("logs")),
		"route53":              route53.NewFromConfig(with("route53")),
		"s3":                   s3.NewFromConfig(with("s3"), func(o *s3.Options) { o.UsePathStyle = true }),
		"servicequotas":        servicequotas.NewFromConfig(with("servicequotas")),
		"sns":                  sns.NewFromConfig(with("sns")),
		"ssm":                  ssm.NewFromConfig(with("ssm")),
		"sts":                  sts.NewFromConfig(with("sts")),
	}
}

// walkConfig is the configuration of the clients: no retries, no validation before the request is sent.
func walkConfig() aws.Config {
	c := awstest.NewConfig(
		"http://127.0.0.1:1",
		"us-east-1",
		credentials.NewStaticCredentialsProvider("AKIAEXAMPLE", "secret", ""),
	)
	c.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
	c.APIOptions = append(c.APIOptions, func(stack *middleware.Stack) error {
		if _, ok := stack.Initialize.Get("OperationInputValidation"); ok {
			_, err := stack.Initialize.Remove("OperationInputValidation")
			return err
		}

		return nil
	})

	return c
}

// walk sends one request for each member of each operation of a service.
type walk struct {
	t      *testing.T
	probe  *probe
	client reflect.Value
	op     string
	shape  reflect.Type // the input of aws-sdk-go v1; nil if the region does not offer the operation
	sent   int
}

// TestEveryMemberOfTheSDK sends, for every operation in the SDK's model, every header, query parameter and member. An
// operation that the region does not offer is refused by name. A member either arrives at the handler, or the request
// is refused. Together with TestEveryMemberIsReadOrRefused, nothing that a client asks for is dropped.
func TestEveryMemberOfTheSDK(t *testing.T) {
	probes := map[string]*probe{}
	offered := map[string]map[string]reflect.Type{}
	for _, s := range buildServices(t).allServices() {
		offered[s.Name] = map[string]reflect.Type{}
		for _, op := range s.Operations {
			offered[s.Name][op.Name] = reflect.TypeOf(op.NewInput()).Elem()
		}

		probes[s.Name] = newProbe(s)
	}

	clients := sdkClients(walkConfig(), func(name string) *probe { return probes[name] })
	sent := 0
	for name := range probes {
		client := reflect.ValueOf(clients[name])
		if name == "tagging" {
			continue // its module of aws-sdk-go-v2 is no dependency; package tagging tests its only operation
		}

		if clients[name] == nil {
			t.Errorf("no client for %s", name)
			continue
		}

		for i := range client.NumMethod() {
			method := client.Type().Method(i)
			if method.Name == "Options" || method.Type.NumIn() < 3 {
				continue
			}

			w := &walk{
				t:      t,
				probe:  probes[name],
				client: client.Method(i),
				op:     method.Name,
				shape:  offered[name][method.Name],
			}

			w.run(method.Type.In(2).Elem())
			sent += w.sent
		}
	}

	if sent < 1500 {
		t.Errorf("sent %d requests: the walk is broken", sent)
	}

	t.Logf("%d requests", sent)
}

// run walks over one operation.
func (w *walk) run(input reflect.Type) {
	base := reflect.New(input)
	w.fillRequired(base.Elem(), w.shape)
	if w.shape == nil {
		w.send(base)
		if w.probe.input != "" {
			w.t.Errorf("%s is not offered and reached a handler", w.op)
		}

		return
	}

	w.send(base)
	without := w.probe.input
	w.walkMembers(input, w.shape, walkPath{base: base, without: without})
}

// walkPath is the way from an input to the struct whose members are walked.
type walkPath struct {
	base    reflect.Value // the input, with its required members
	fields  []int         // from the input to the struct
	names   []string      // of the fields
	without string        // what the handler gets without the member
}

// walkMembers sends a request for each member of a struct.
func (w *walk) walkMembers(t, shape reflect.Type, at walkPath) {
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || f.Name == "ResultMetadata" {
			continue
		}

		next := at
		next.fields = append(slices.Clone(at.fields), i)
		next.names = append(slices.Clone(at.names), f.Name)
		if inner := structOf(f.Type); inner != nil && !slices.Contains(at.names, f.Name) && len(next.names) < 6 {
			w.walkMembers(inner, memberShape(shape, f.Name), next)
			continue
		}

		w.sendMember(f, next)
	}
}

// structOf returns the struct that a member, or a list of it, consists of; nil for scalars and streams.
func structOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}

	if t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() {
		return nil
	}

	return t
}

// memberShape returns the struct of a member in a shape of aws-sdk-go v1; nil if there is none.
func memberShape(shape reflect.Type, name string) reflect.Type {
	if shape == nil {
		return nil
	}

	f, ok := shape.FieldByName(name)
	if !ok {
		return nil
	}

	return structOf(f.Type)
}

// sendMember sends a request with one member set, and checks that it arrives or is refused.
func (w *walk) sendMember(f reflect.StructField, at walkPath) {
	in := reflect.New(at.base.Type().Elem())
	w.fillRequired(in.Elem(), w.shape)
	v := in.Elem()
	shape := w.shape

	for i, index := range at.fields {
		v = v.Field(index)
		if i == len(at.fields)-1 {
			break
		}

		v = openStruct(v)
		shape = memberShape(shape, at.names[i])
		w.fillRequired(v, shape)
	}

	name := strings.Join(at.names, ".")
	if !v.IsZero() { // required: every request has it
		return
	}

	if !setSample(v) {
		w.t.Errorf("%s.%s: the test has no sample of %s", w.op, name, f.Type)
		return
	}

	err := w.send(in)
	w.sent++

	switch {
	case w.probe.refusal == "" && w.probe.input == "":
		if !isClientSide(err) {
			w.t.Errorf("%s.%s: no request was sent: %v", w.op, name, err)
		}

	case w.probe.refusal == "" && w.probe.input == at.without && !isBody(name) && !isHeaderOfSetting(name):
		w.t.Errorf("%s.%s is dropped: it neither reaches the handler nor is refused", w.op, name)
	}
}

// isHeaderOfSetting reports whether a member is a header that handlers of settings compare with S3's default, in the request itself: see
// TestSmallestObjectsOfTransitions.
func isHeaderOfSetting(name string) bool { return name == "TransitionDefaultMinimumObjectSize" }

// isBody reports whether a member is the body of a request or its length: handlers read both from the request.
func isBody(name string) bool { return name == "Body" || name == "ContentLength" }

// isClientSide reports whether the SDK itself refused to send a request.
func isClientSide(err error) bool {
	_, api := errors.AsType[smithy.APIError](err)
	return err != nil && !api
}

// openStruct returns the struct that a member is, points to, or is a list of; it creates the first item.
func openStruct(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice {
		if v.Kind() == reflect.Slice {
			if v.Len() == 0 {
				v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			}

			v = v.Index(0)

			continue
		}

		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}

		v = v.Elem()
	}

	return v
}

// fillRequired sets the members of a struct that the shape of aws-sdk-go v1 requires, and those that the SDK needs to
// build a URL.
func (w *walk) fillRequired(v reflect.Value, shape reflect.Type) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() || !v.Field(i).IsZero() {
			continue
		}

		required := slices.Contains([]string{"Bucket", "Key"}, f.Name) && shape == w.shape
		if shape != nil {
			old, ok := shape.FieldByName(f.Name)
			required = required || ok && old.Tag.Get("required") == "true"
		}

		if !required {
			continue
		}

		if inner := structOf(f.Type); inner != nil {
			w.fillRequired(openStruct(v.Field(i)), memberShape(shape, f.Name))
			continue
		}

		setSample(v.Field(i))
	}
}

// setSample sets a scalar, a list or a map of scalars, or a stream to a value that the service decodes.
func setSample(v reflect.Value) bool {
	if values := v.MethodByName("Values"); values.IsValid() && v.Kind() == reflect.String {
		list := values.Call(nil)[0]
		if list.Len() > 0 {
			v.Set(list.Index(0))
			return true
		}
	}

	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return setSample(v.Elem())
	case reflect.String:
		v.SetString(strings.Repeat("walk", 10))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(128)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[[]byte]() {
			v.SetBytes([]byte("walk"))
			return true
		}

		v.Set(reflect.MakeSlice(v.Type(), 1, 1))

		return setSample(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		item := reflect.New(v.Type().Elem()).Elem()
		if !setSample(item) {
			return false
		}

		key := reflect.New(v.Type().Key()).Elem()
		setSample(key)
		v.SetMapIndex(key, item)

	case reflect.Interface:
		for _, sample := range []any{
			bytes.NewReader([]byte("walk")),
			&iamtypes.PolicyIdentifierMemberPolicyArn{Value: "arn:aws:iam::aws:policy/walk"},
		} {
			if reflect.TypeOf(sample).Implements(v.Type()) {
				v.Set(reflect.ValueOf(sample))
				return true
			}
		}

		return false

	case reflect.Struct:
		if v.Type() != reflect.TypeFor[time.Time]() {
			return setStructSample(v)
		}

		v.Set(reflect.ValueOf(time.Unix(1e9, 0)))
	default:
		return false
	}

	return true
}

// setStructSample sets the first member of a struct that can be set.
func setStructSample(v reflect.Value) bool {
	for i := range v.NumField() {
		if v.Type().Field(i).IsExported() && setSample(v.Field(i)) {
			return true
		}
	}

	return v.NumField() > 0
}

// send sends a request.
func (w *walk) send(in reflect.Value) (err error) {
	w.probe.input = ""
	w.probe.refusal = ""

	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
			w.t.Errorf("%s: %v", w.op, err)
		}
	}()

	out := w.client.Call([]reflect.Value{reflect.ValueOf(context.Background()), in})
	if failed, ok := reflect.TypeAssert[error](out[1]); ok {
		return failed
	}

	return nil
}
