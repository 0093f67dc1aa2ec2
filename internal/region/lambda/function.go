// SPDX-License-Identifier: Apache-2.0

package lambda

import (
	"context"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/lambda"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// The limits and defaults of Lambda (Lambda developer guide, quotas; API reference, CreateFunction).
const (
	maxNameLength        = 64
	maxDescriptionLength = 256
	maxMemoryMB          = 10_240
	maxTimeoutS          = 900
	maxEnvironmentBytes  = 4096
	maxPageSize          = 50
	defaultMemoryMB      = 128
	defaultTimeoutS      = 3
)

// The only runtime and package type that the region runs.
const (
	supportedRuntime = "provided.al2023"
	supportedPackage = sdk.PackageTypeZip
)

// settings are the members that CreateFunction and UpdateFunctionConfiguration share. nil and empty leave a setting as
// it is.
type settings struct {
	role, description, handler, runtime *string
	memoryMB, timeoutS                  *int64
	environment                         *sdk.Environment
	logging                             *sdk.LoggingConfig
}

// createFunction reads the code first: S3 must not be called under the lock.
func (s *Service) createFunction(
	ctx context.Context,
	in *sdk.CreateFunctionInput,
) (*sdk.FunctionConfiguration, error) {
	f, err := s.newFunction(in)
	if err != nil {
		return nil, err
	}

	name := s.functionName(in.FunctionName)
	code, err := s.fetchCode(ctx, name, codeSource{in.Code.S3Bucket, in.Code.S3Key, in.Code.S3ObjectVersion})
	if err != nil {
		return nil, err
	}

	f.setCode(code)

	var out *sdk.FunctionConfiguration
	err = s.store.Update(func() error {
		if s.st.Functions[name] != nil {
			return newErrorf(codeResourceConflict, "Function already exist: %s", name)
		}

		maps.Copy(f.Tags, wire.SystemTags(ctx))
		s.touch(f)
		f.Created = f.Modified
		s.st.Functions[name] = f
		s.unseen.Track(functionPrefix + name)
		out = s.toConfiguration(name)

		return nil
	})
	wire.SetResponseStatus(ctx, http.StatusCreated)

	return out, err
}

// newFunction checks a request and returns its function without code.
func (s *Service) newFunction(in *sdk.CreateFunctionInput) (*function, error) {
	name := s.functionName(in.FunctionName)
	if len(name) > maxNameLength || !regexp.MustCompile(`^[a-zA-Z0-9-_]+$`).MatchString(name) {
		return nil, newErrorf(
			codeValidation,
			"1 validation error detected: Value '%s' at 'functionName' failed to satisfy constraint: Member must "+
				"have length less than or equal to %d and satisfy regular expression pattern: [a-zA-Z0-9-_]+",
			name,
			maxNameLength,
		)
	}

	if kind := sdkshape.String(in.PackageType); kind != "" && kind != supportedPackage {
		return nil, wire.NotImplemented("PackageType " + kind)
	}

	if sdkshape.String(in.Runtime) == "" || sdkshape.String(in.Handler) == "" {
		return nil, invalidParameter(
			"Runtime and Handler are mandatory parameters for functions created with deployment packages.",
		)
	}

	f := &function{
		Arch:     sdk.ArchitectureX8664,
		MemoryMB: defaultMemoryMB,
		TimeoutS: defaultTimeoutS,
		Tags:     map[string]string{},
	}
	if err := f.setArchitecture(in.Architectures); err != nil {
		return nil, err
	}

	if err := f.addTags(in.Tags); err != nil {
		return nil, err
	}

	return f, s.apply(f, settings{
		role:        in.Role,
		description: in.Description,
		handler:     in.Handler,
		runtime:     in.Runtime,
		memoryMB:    in.MemorySize,
		timeoutS:    in.Timeout,
		environment: in.Environment,
		logging:     in.LoggingConfig,
	})
}

// setArchitecture sets the architecture of a request, if it names one.
func (f *function) setArchitecture(given []*string) error {
	if len(given) > 1 {
		return invalidParameter("1 validation error detected: a function has one architecture")
	}

	for _, a := range sdkshape.Strings(given) {
		f.Arch = a
	}

	return nil
}

// apply checks settings and sets them.
func (s *Service) apply(f *function, given settings) error {
	if r := sdkshape.String(given.runtime); r != "" && r != supportedRuntime {
		return wire.NotImplemented("the runtime " + r)
	}

	if given.role != nil {
		if err := s.checkRole(*given.role); err != nil {
			return err
		}

		f.Role = *given.role
	}

	if given.handler != nil {
		f.Handler = *given.handler
	}

	if given.description != nil {
		if len(*given.description) > maxDescriptionLength {
			return invalidParameter(
				"1 validation error detected: 'description' has more than %d characters",
				maxDescriptionLength,
			)
		}

		f.Description = *given.description
	}

	if err := f.setSizes(given.memoryMB, given.timeoutS); err != nil {
		return err
	}

	if given.environment != nil {
		if err := f.setEnvironment(given.environment.Variables); err != nil {
			return err
		}
	}

	return f.setLogging(given.logging)
}

// setSizes sets the memory and the timeout.
func (f *function) setSizes(memoryMB, timeoutS *int64) error {
	if memoryMB != nil {
		if *memoryMB > maxMemoryMB {
			return invalidParameter(
				"'MemorySize' value failed to satisfy constraint: Member must have value less than or equal to %d",
				maxMemoryMB,
			)
		}

		f.MemoryMB = *memoryMB
	}

	if timeoutS != nil {
		if *timeoutS > maxTimeoutS {
			return invalidParameter(
				"'Timeout' value failed to satisfy constraint: Member must have value less than or equal to %d",
				maxTimeoutS,
			)
		}

		f.TimeoutS = *timeoutS
	}

	return nil
}

// setLogging sets the log group. The region writes logs as text, as the function does.
func (f *function) setLogging(given *sdk.LoggingConfig) error {
	if given == nil {
		return nil
	}

	if format := sdkshape.String(given.LogFormat); format != "" && format != sdk.LogFormatText {
		return wire.NotImplemented("LoggingConfig.LogFormat " + format)
	}

	f.LogGroup = sdkshape.String(given.LogGroup)

	return nil
}

// checkRole refuses a role that Lambda cannot assume.
func (s *Service) checkRole(arn string) error {
	name := arn[strings.LastIndex(arn, "/")+1:]
	known, ok := s.cfg.Roles.RoleARN(name)
	if !ok || known != arn || !s.cfg.Roles.TrustsService(name, servicePrincipal) {
		return invalidParameter("The role defined for the function cannot be assumed by Lambda.")
	}

	return nil
}

// reservedVariables are the environment variables that Lambda sets (Lambda developer guide, defined runtime environment
// variables).
func reservedVariables() []string {
	return []string{
		"_HANDLER", "_X_AMZN_TRACE_ID", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_EXECUTION_ENV",
		"AWS_LAMBDA_FUNCTION_NAME", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "AWS_LAMBDA_FUNCTION_VERSION",
		"AWS_LAMBDA_INITIALIZATION_TYPE", "AWS_LAMBDA_LOG_GROUP_NAME", "AWS_LAMBDA_LOG_STREAM_NAME", "AWS_ACCESS_KEY",
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_LAMBDA_RUNTIME_API", "LAMBDA_TASK_ROOT",
		"LAMBDA_RUNTIME_DIR",
	}
}

func (f *function) setEnvironment(variables map[string]*string) error {
	size := 0
	var reserved []string
	after := map[string]string{}

	for _, k := range sdkshape.SortedKeys(variables) {
		v := sdkshape.String(variables[k])
		if !regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]+$`).MatchString(k) {
			if slices.Contains(reservedVariables(), k) {
				reserved = append(reserved, k)
				continue
			}

			return invalidParameter(
				"1 validation error detected: the name of the environment variable %s is not valid",
				k,
			)
		}

		if slices.Contains(reservedVariables(), k) {
			reserved = append(reserved, k)
		}

		size += len(k) + len(v)
		after[k] = v
	}

	if len(reserved) > 0 {
		return invalidParameter(
			"Lambda was unable to configure your environment variables because the environment variables you have "+
				"provided contains reserved keys that are currently not supported for modification. Reserved keys used "+
				"in this request: %s",
			strings.Join(reserved, ", "),
		)
	}

	if size > maxEnvironmentBytes {
		return invalidParameter(
			"Lambda was unable to configure your environment variables because the environment variables you have " +
				"provided exceeded the 4KB limit.",
		)
	}

	f.Environment = after

	return nil
}

// touch records a change of a function, which is not ready for a while.
func (s *Service) touch(f *function) {
	f.Modified = s.cfg.Now().UTC()
	f.Revision = sdkshape.RandomUUID(s.cfg.Rand)
}

// checkReady refuses a change of a function that is not ready.
func (s *Service) checkReady(name string, f *function) error {
	if !s.cfg.Now().Before(f.Modified.Add(s.cfg.Delay)) {
		return nil
	}

	reason := "An update is in progress for resource: "
	if f.Modified.Equal(f.Created) {
		reason = "The function is currently in the following state: Pending: "
	}

	return newErrorf(
		codeResourceConflict,
		"The operation cannot be performed at this time. %s%s",
		reason,
		s.functionARN(name),
	)
}

// toConfiguration describes a function for a response.
func (s *Service) toConfiguration(name string) *sdk.FunctionConfiguration {
	f := s.st.Functions[name]
	ready := !s.cfg.Now().Before(f.Modified.Add(s.cfg.Delay))
	state := sdk.StateActive
	update := sdk.LastUpdateStatusSuccessful
	if !ready {
		update = sdk.LastUpdateStatusInProgress
		if f.Modified.Equal(f.Created) {
			state = sdk.StatePending
		}
	}

	out := &sdk.FunctionConfiguration{
		Architectures:    []*string{&f.Arch},
		CodeSha256:       &f.CodeSHA256,
		CodeSize:         &f.CodeSize,
		Description:      &f.Description,
		EphemeralStorage: &sdk.EphemeralStorage{Size: new(int64(512))},
		FunctionArn:      new(s.functionARN(name)),
		FunctionName:     &name,
		Handler:          &f.Handler,
		LastModified:     new(f.Modified.Format("2006-01-02T15:04:05.000+0000")),
		LastUpdateStatus: &update,
		LoggingConfig:    &sdk.LoggingConfig{LogFormat: new(sdk.LogFormatText), LogGroup: new(f.logGroup(name))},
		MemorySize:       &f.MemoryMB,
		PackageType:      new(supportedPackage),
		RevisionId:       &f.Revision,
		Role:             &f.Role,
		Runtime:          new(supportedRuntime),
		SnapStart: &sdk.SnapStartResponse{
			ApplyOn:            new(sdk.SnapStartApplyOnNone),
			OptimizationStatus: new(sdk.SnapStartOptimizationStatusOff),
		},
		State:         &state,
		Timeout:       &f.TimeoutS,
		TracingConfig: &sdk.TracingConfigResponse{Mode: new(sdk.TracingModePassThrough)},
		Version:       new("$LATEST"),
	}
	if len(f.Environment) > 0 {
		out.Environment = &sdk.EnvironmentResponse{Variables: map[string]*string{}}
		for k, v := range f.Environment {
			out.Environment.Variables[k] = &v
		}
	}

	return out
}

// logGroup returns the name of the log group of a function.
func (f *function) logGroup(name string) string {
	if f.LogGroup != "" {
		return f.LogGroup
	}

	return "/aws/lambda/" + name
}
