// rerank.rs: rustc -O rerank.rs -L DIR_OF_LIBONNXRUNTIME -l onnxruntime && ./rerank DIR
use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_char, c_void, CStr, CString};
use std::{env, fs, mem::transmute, ptr::null, ptr::null_mut};

pub const EDGE_TYPES: [&str; 5] = ["reference", "entity", "adjacency", "similarity", "other"];
const API_VERSION: u32 = 16; // of ONNX Runtime 1.16, and of all that are newer
const FLOAT: i32 = 1; // ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT
const INT64: i32 = 7;

type Ptr = *mut c_void;
type Text = *const c_char;
type Table = *const *const c_void; // OrtApi of onnxruntime_c_api.h: functions, none of which ever changes its place

#[repr(C)]
struct ApiBase {
    get_api: extern "C" fn(u32) -> Table,
    get_version: extern "C" fn() -> Text,
}

extern "C" {
    fn OrtGetApiBase() -> *const ApiBase;
}

/// Call the function at a place of the table; its status is an error or null.
macro_rules! ort {
    ($api:expr, $place:literal, $($argument:expr => $kind:ty),*) => {{
        let function: extern "C" fn($($kind),*) -> Ptr = transmute(*$api.add($place));
        check($api, function($($argument),*))
    }};
}

unsafe fn check(api: Table, status: Ptr) -> Result<(), String> {
    if status.is_null() {
        return Ok(());
    }
    let message: extern "C" fn(Ptr) -> Text = transmute(*api.add(2)); // GetErrorMessage
    let text = CStr::from_ptr(message(status)).to_string_lossy().into_owned();
    release(api, 93, status); // ReleaseStatus
    Err(text)
}

unsafe fn release(api: Table, place: usize, object: Ptr) {
    let function: extern "C" fn(Ptr) = transmute(*api.add(place));
    function(object);
}

pub enum Data {
    Floats(Vec<f32>),
    Integers(Vec<i64>),
}

pub struct Tensor {
    pub name: String,
    pub shape: Vec<i64>,
    pub data: Data,
}

pub struct Model {
    api: Table,
    env: Ptr,
    session: Ptr,
    inputs: Vec<CString>,
    outputs: Vec<CString>,
    pub features: Vec<String>, // the columns of base_features
}

impl Model {
    /// Open an artifact: its ONNX file, and of its manifest the names of the columns.
    pub fn load(folder: &str) -> Result<Model, String> {
        let manifest = fs::read_to_string(format!("{folder}/manifest.json")).map_err(|error| error.to_string())?;
        let listed = manifest.split("\"feature_names\"").nth(1).ok_or("manifest.json: no feature_names")?;
        let names = listed.split(']').next().unwrap_or("").split('"').skip(1).step_by(2); // plain words
        let features = names.map(String::from).collect();
        let path = CString::new(format!("{folder}/model.onnx")).map_err(|error| error.to_string())?;
        let (mut env, mut options, mut session, mut allocator) = (null_mut(), null_mut(), null_mut(), null_mut());
        unsafe {
            let api = ((*OrtGetApiBase()).get_api)(API_VERSION);
            if api.is_null() {
                return Err("ONNX Runtime must be 1.16 or newer".into());
            }
            ort!(api, 3, 3 => i32, c"graphrerank".as_ptr() => Text, &mut env => *mut Ptr)?; // CreateEnv; errors only
            ort!(api, 10, &mut options => *mut Ptr)?; // CreateSessionOptions
            let opened = ort!(api, 7, env => Ptr, path.as_ptr() => Text, options => Ptr, &mut session => *mut Ptr);
            release(api, 100, options);
            opened?; // CreateSession
            ort!(api, 78, &mut allocator => *mut Ptr)?; // GetAllocatorWithDefaultOptions
            let (mut count, mut parts) = (0usize, [Vec::new(), Vec::new()]);
            for (part, names) in parts.iter_mut().enumerate() {
                match part {
                    0 => ort!(api, 30, session => Ptr, &mut count => *mut usize)?, // SessionGetInputCount
                    _ => ort!(api, 31, session => Ptr, &mut count => *mut usize)?, // SessionGetOutputCount
                }
                for place in 0..count {
                    let mut name: *mut c_char = null_mut();
                    let out: *mut *mut c_char = &mut name;
                    match part {
                        0 => ort!(api, 36, session => Ptr, place => usize, allocator => Ptr, out => *mut *mut c_char)?,
                        _ => ort!(api, 37, session => Ptr, place => usize, allocator => Ptr, out => *mut *mut c_char)?,
                    } // SessionGetInputName, SessionGetOutputName
                    names.push(CStr::from_ptr(name).to_owned());
                    ort!(api, 76, allocator => Ptr, name as Ptr => Ptr)?; // AllocatorFree
                }
            }
            let [inputs, outputs] = parts;
            Ok(Model { api, env, session, inputs, outputs, features })
        }
    }

    pub fn reads(&self, input: &str) -> bool {
        self.inputs.iter().any(|name| name.to_bytes() == input.as_bytes())
    }

    /// Run the file; inputs that it does not have are left out.
    pub fn run(&self, tensors: &[Tensor]) -> Result<HashMap<String, Vec<f32>>, String> {
        let (api, mut memory) = (self.api, null_mut());
        let (mut values, mut found): (Vec<Ptr>, Vec<Ptr>) = (Vec::new(), vec![null_mut(); self.outputs.len()]);
        let texts = |names: &[CString]| names.iter().map(|name| name.as_ptr()).collect::<Vec<Text>>();
        let (inputs, outputs) = (texts(&self.inputs), texts(&self.outputs));
        let ran = unsafe {
            ort!(api, 69, 0 => i32, 0 => i32, &mut memory => *mut Ptr)?; // CreateCpuMemoryInfo
            (|| {
                for name in &self.inputs {
                    let name = name.to_str().map_err(|error| error.to_string())?;
                    let tensor = tensors.iter().find(|tensor| tensor.name == name).ok_or(format!("no input {name}"))?;
                    let (data, bytes, kind) = match &tensor.data {
                        Data::Floats(data) => (data.as_ptr() as Ptr, 4 * data.len(), FLOAT),
                        Data::Integers(data) => (data.as_ptr() as Ptr, 8 * data.len(), INT64),
                    };
                    let mut value = null_mut();
                    ort!(api, 49, memory => Ptr, data => Ptr, bytes => usize, tensor.shape.as_ptr() => *const i64,
                        tensor.shape.len() => usize, kind => i32, &mut value => *mut Ptr)?; // CreateTensorWithDataAsOrtValue
                    values.push(value);
                }
                ort!(api, 9, self.session => Ptr, null() => *const c_void, inputs.as_ptr() => *const Text,
                    values.as_ptr() => *const Ptr, values.len() => usize, outputs.as_ptr() => *const Text,
                    outputs.len() => usize, found.as_mut_ptr() => *mut Ptr)?; // Run
                let mut result = HashMap::new();
                for (name, value) in self.outputs.iter().zip(&found) {
                    let (mut info, mut count, mut data) = (null_mut(), 0usize, null_mut());
                    ort!(api, 65, *value => Ptr, &mut info => *mut Ptr)?; // GetTensorTypeAndShape
                    let counted = ort!(api, 64, info => Ptr, &mut count => *mut usize); // GetTensorShapeElementCount
                    release(api, 99, info);
                    counted?;
                    ort!(api, 51, *value => Ptr, &mut data => *mut Ptr)?; // GetTensorMutableData
                    let numbers = (0..count).map(|place| *(data as *const f32).add(place)).collect();
                    result.insert(name.to_string_lossy().into_owned(), numbers);
                }
                Ok(result)
            })()
        };
        unsafe {
            values.iter().chain(&found).for_each(|value| release(api, 96, *value)); // ReleaseValue
            release(api, 94, memory); // ReleaseMemoryInfo
        }
        ran
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe {
            release(self.api, 95, self.session);
            release(self.api, 92, self.env);
        }
    }
}

/// A query's candidates: scores by name, 0 for names left out, and edges (from, to, weight, type), which join both ways.
pub struct Query<'a> {
    pub ids: Vec<&'a str>,
    pub features: HashMap<&'a str, Vec<f32>>,
    pub edges: Vec<(usize, usize, f32, &'a str)>,
}

pub struct Ranked<'a> {
    pub id: &'a str,
    pub score: f32,
    pub probability: Option<f32>,
}

/// Rank the candidates of several queries, best first.
pub fn rerank<'a>(model: &Model, queries: &[Query<'a>]) -> Result<Vec<Vec<Ranked<'a>>>, String> {
    let (mut rows, mut sources, mut targets) = (Vec::new(), Vec::new(), Vec::new());
    let (mut weights, mut types, mut ptr) = (Vec::new(), Vec::new(), vec![0i64]);
    for query in queries {
        let start = ptr[ptr.len() - 1];
        if let Some(name) = query.features.keys().find(|name| !model.features.iter().any(|known| known == *name)) {
            return Err(format!("features must be among {:?}, got {name}", model.features));
        }
        for place in 0..query.ids.len() {
            rows.extend(model.features.iter().map(|name| query.features.get(name.as_str()).map_or(0.0, |row| row[place])));
        }
        let mut kept: BTreeMap<(i64, i64, i64), (f32, i64)> = BTreeMap::new(); // of parallel edges of one type the heaviest
        for &(from, to, weight, kind) in &query.edges {
            let number = EDGE_TYPES.iter().position(|known| *known == kind);
            let number = number.ok_or(format!("type must be one of {EDGE_TYPES:?}, got {kind}"))? as i64;
            for (source, target) in [(from, to), (to, from)] {
                let key = (source as i64, target as i64, if model.reads("edge_type") { number } else { 0 });
                let edge = kept.entry(key).or_insert((weight, number));
                *edge = if edge.0 < weight { (weight, number) } else { *edge };
            }
        }
        for ((source, target, _), (weight, number)) in kept {
            sources.push(start + source);
            targets.push(start + target);
            weights.push(weight);
            types.push(number);
        }
        ptr.push(start + query.ids.len() as i64);
    }
    let (count, edges) = (ptr[ptr.len() - 1], weights.len() as i64);
    sources.extend(targets);
    let tensor = |name: &str, shape: &[i64], data| Tensor { name: name.into(), shape: shape.into(), data };
    let found = model.run(&[
        tensor("base_features", &[count, model.features.len() as i64], Data::Floats(rows)),
        tensor("query_vectors", &[0, 0], Data::Floats(vec![])),
        tensor("node_vectors", &[0, 0], Data::Floats(vec![])),
        tensor("edge_index", &[2, edges], Data::Integers(sources)),
        tensor("edge_weight", &[edges], Data::Floats(weights)),
        tensor("ptr", &[ptr.len() as i64], Data::Integers(ptr.clone())),
        tensor("edge_type", &[edges], Data::Integers(types)),
    ])?;
    let rank = |(query, start): (&Query<'a>, &i64)| {
        let mut ranked: Vec<Ranked> = (query.ids.iter().enumerate())
            .map(|(place, id)| {
                let node = *start as usize + place;
                let probability = found.get("probabilities").map(|all| all[node]);
                Ranked { id, score: found["scores"][node], probability }
            })
            .collect();
        ranked.sort_by(|one, other| other.score.total_cmp(&one.score));
        ranked
    };
    Ok(queries.iter().zip(&ptr).map(rank).collect())
}

fn main() -> Result<(), String> {
    let model = Model::load(&env::args().nth(1).ok_or("rerank DIR: the folder of an artifact")?)?;
    let query = Query {
        ids: vec!["Solaris", "film director", "Paris", "Andrei Tarkovsky"],
        features: HashMap::from([("base_score", vec![0.71, 0.55, 0.21, 0.34])]),
        edges: vec![(0, 3, 1.0, "reference")],
    };
    for Ranked { id, score, probability } in &rerank(&model, &[query])?[0] {
        println!("{id} {score:.4} {:.4}", probability.unwrap_or(f32::NAN));
    }
    Ok(())
}
