// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"
	"maps"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// lambdaTypes are the types of Lambda.
func lambdaTypes() map[string]Type {
	return map[string]Type{
		"AWS::Lambda::Function":   functionType(),
		"AWS::Lambda::Permission": permissionType(),
	}
}

// functionType is AWS::Lambda::Function. Its physical ID is the name.
func functionType() Type {
	return Type{
		NameProperty:  "FunctionName",
		MaxNameLength: 64,
		Create:        createFunction,
		Stabilize:     waitForFunction,
		Update:        updateFunction,
		Delete: func(ctx context.Context, req *Request) error {
			return runOnFunction(ctx, req, "DeleteFunction", template.Object{})
		},
	}
}

// runOnFunction calls an operation on the function of a request.
func runOnFunction(ctx context.Context, req *Request, operation string, in template.Object) error {
	in["FunctionName"] = req.PhysicalID

	return req.runOperation(ctx, "lambda", operation, in)
}

// tagObject returns tags as an object.
func tagObject(tags map[string]string) template.Object {
	out := template.Object{}
	for k, v := range tags {
		out[k] = v
	}

	return out
}

func createFunction(ctx context.Context, req *Request) error {
	name := req.physicalName()
	in := req.omitProperties("Tags")
	in["FunctionName"] = name
	if tags := mergeTags(req.StackTags, req.Properties["Tags"]); len(tags) > 0 {
		in["Tags"] = tagObject(tags)
	}

	err := req.runOperation(ctx, "lambda", "CreateFunction", in)
	if err != nil && (!req.Resumed || ErrorCode(err) != "ResourceConflictException") {
		return err
	}

	return req.setPhysicalID(ctx, name)
}

// waitForFunction waits until a function is ready, and sets the attributes.
func waitForFunction(ctx context.Context, req *Request) error {
	return req.waitUntil(ctx, func() (bool, error) {
		out, err := req.callOperation(ctx, "lambda", "GetFunctionConfiguration", template.Object{
			"FunctionName": req.PhysicalID,
		})
		if err != nil {
			return false, err
		}

		req.Attributes["Arn"] = template.StringAt(out, "FunctionArn")
		ready := template.StringAt(out, "State") == "Active" &&
			template.StringAt(out, "LastUpdateStatus") == "Successful"

		return ready, nil
	})
}

func updateFunction(ctx context.Context, req *Request) error {
	if req.propertyChanged("Code", "Architectures") {
		in := req.pickProperties("Architectures")
		if code, ok := req.Properties["Code"].(template.Object); ok {
			maps.Copy(in, code)
		}

		if err := runOnFunction(ctx, req, "UpdateFunctionCode", in); err != nil {
			return err
		}

		if err := waitForFunction(ctx, req); err != nil {
			return err
		}
	}

	return updateFunctionSettings(ctx, req)
}

// updateFunctionSettings updates everything but the code of a function.
func updateFunctionSettings(ctx context.Context, req *Request) error {
	settings := []string{
		"Description", "Environment", "Handler", "LoggingConfig", "MemorySize", "Role", "Runtime", "Timeout",
	}
	if req.propertyChanged(settings...) {
		in := req.pickProperties(settings...)
		if req.propertyChanged("Description") && !req.hasProperty("Description") {
			in["Description"] = ""
		}

		if req.propertyChanged("Environment") && !req.hasProperty("Environment") {
			in["Environment"] = template.Object{}
		}

		if err := runOnFunction(ctx, req, "UpdateFunctionConfiguration", in); err != nil {
			return err
		}

		if err := waitForFunction(ctx, req); err != nil {
			return err
		}
	}

	return updateFunctionTags(ctx, req)
}

func updateFunctionTags(ctx context.Context, req *Request) error {
	return req.updateTags("Tags", func(tags []any) error {
		return req.runOperation(ctx, "lambda", "TagResource", template.Object{
			"Resource": req.Attributes["Arn"],
			"Tags":     tagObject(mergeTags(nil, tags)),
		})
	}, func(keys []any) error {
		return req.runOperation(ctx, "lambda", "UntagResource", template.Object{
			"Resource": req.Attributes["Arn"],
			"TagKeys":  keys,
		})
	})
}

// permissionType is AWS::Lambda::Permission. Its physical ID is the ID of a statement; every change replaces it.
func permissionType() Type {
	return Type{
		Create: func(ctx context.Context, req *Request) error {
			in := req.omitProperties()
			id := req.StackName + "-" + req.LogicalID + "-" + req.Engine.RandomHex(12)
			in["StatementId"] = id
			if err := req.runOperation(ctx, "lambda", "AddPermission", in); err != nil {
				return err
			}

			return req.setPhysicalID(ctx, id)
		},
		Delete: func(ctx context.Context, req *Request) error {
			return req.runOperation(ctx, "lambda", "RemovePermission", template.Object{
				"FunctionName": req.Properties["FunctionName"],
				"StatementId":  req.PhysicalID,
			})
		},
		FindCreated: findPermission,
	}
}

// findPermission looks for the statement that an interrupted creation has added: its ID begins with the names of the
// stack and the resource.
func findPermission(ctx context.Context, req *Request) (bool, error) {
	out, err := req.callOperation(ctx, "lambda", "GetPolicy", template.Object{
		"FunctionName": req.Properties["FunctionName"],
	})
	if IsNotFound(err) {
		return false, nil
	}

	if err != nil {
		return false, err
	}

	id := findStatement(template.StringAt(out, "Policy"), req.StackName+"-"+req.LogicalID+"-")
	if id == "" {
		return false, nil
	}

	return true, req.setPhysicalID(ctx, id)
}
